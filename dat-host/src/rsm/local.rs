//! Local memory that is registered once, for many vectors.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use dat_core::backend::SyncDirection;
use dat_rsm::{LocalAccess, LocalMemoryId};

use super::Guard;
use super::call::Call;
use super::held::Held;
use crate::error::{Failed, Result};
use crate::memory::{Stable, copies};
use crate::remote::resolve_range;

/// Memory of this node with a handle (`rsm_create_localmemory_handle`), for entries of vectors.
///
/// Transfers use the memory itself, so a vector of its slices registers and copies nothing. The
/// bytes have no slices in Rust: in explicit mode a get may write them until its barrier closes,
/// and a put may read them until then.
/// Dropping it ends the registration, on a thread of the node.
///
/// ```
/// use dat_host::Pages;
/// use dat_host::rsm::{Get, Import, Node, Put, VectorFlags};
///
/// # fn exchange(node: &Node, import: &Import) -> dat_host::Result<()> {
/// let local = node.local_memory(Pages::anonymous(1 << 16)?)?;
/// local.store(0, b"two blocks")?;
/// let two = Put { memory: local.slice(..3)?, offset: 0 };
/// let blocks = Put { memory: local.slice(4..10)?, offset: 4096 };
/// import.putv(vec![two, blocks], VectorFlags::empty()).wait()?;
/// let back = Get { memory: local.slice(100..106)?, offset: 4096 };
/// import.getv(vec![back], VectorFlags::empty()).wait()?;
/// # Ok(())
/// # }
/// ```
pub struct LocalMemory<M: Stable>(Held<M, LocalMemoryId>);

impl<M: Stable> LocalMemory<M> {
    pub(super) fn new(guard: &Arc<Guard>, value: M) -> Result<Self, Failed<M>> {
        let held = Held::new(guard, value, |site, region| {
            let access = LocalAccess::ReadWrite;
            site.engine()
                .create_local_memory(site.controller, region, access)
        })?;
        Ok(Self(held))
    }

    /// Returns the local memory handle of the engine.
    pub fn id(&self) -> LocalMemoryId {
        self.0.id()
    }

    /// Returns a part of the memory, for an entry of a vector.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the memory.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice> {
        let (offset, length) = resolve_range(range, self.len())?;
        Ok(LocalSlice {
            id: self.id(),
            offset: offset as u64,
            length: length as u64,
        })
    }

    /// Returns the bytes as atomics, which gets change.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.0.atomics()
    }

    /// Nothing: the provider keeps buffers of transfers coherent.
    const fn synchronise(&self, _: SyncDirection, _: usize, _: usize) {}

    /// Ends the registration once its vectors are done; returns the owner of the memory.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory): the node is closing. The memory is then kept
    /// until the node is closed.
    pub fn free(self) -> Call<Result<M>> {
        self.0.free()
    }
}

copies!([M: Stable] LocalMemory<M>);

impl<M: Stable> fmt::Debug for LocalMemory<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalMemory")
            .field("id", &self.id())
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

/// A part of a [`LocalMemory`], by its handle.
///
/// A vector with a part of memory that is freed, or of another node's, fails with BAD_SGIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSlice {
    pub(super) id: LocalMemoryId,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl LocalSlice {
    /// Returns the number of bytes.
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Returns true if there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}
