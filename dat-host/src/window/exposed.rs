//! Synchronisation of memory that peers access, for programs that use its atomics.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use dat_core::backend::SyncDirection;
use dat_core::memory::LmrTriplet;

use crate::error::{Error, Result};
use crate::flight::AdapterState;
use crate::memory::check_same_adapter;
use crate::open::Adapter;

/// Segments that one call of the core gets.
const SEGMENTS: usize = 16;

/// A range of memory that peers access, for [`Adapter::sync_rdma_read`] and
/// [`Adapter::sync_rdma_write`].
///
/// Made by [`Window::exposed`](crate::Window::exposed) and
/// [`ZoneWindow::exposed`](crate::ZoneWindow::exposed).
#[derive(Clone)]
pub struct Exposed<'a> {
    segment: LmrTriplet,
    adapter: Arc<AdapterState>,
    window: PhantomData<&'a ()>,
}

impl Exposed<'_> {
    pub(crate) fn new(adapter: &Arc<AdapterState>, segment: LmrTriplet) -> Self {
        Self {
            segment,
            adapter: Arc::clone(adapter),
            window: PhantomData,
        }
    }
}

impl fmt::Debug for Exposed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("length", &self.segment.length)
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// Shows stores of the program to RDMA Reads of peers (`dat_lmr_sync_rdma_read`).
    ///
    /// For programs that use the atomics of windows: `load`, `store` and `revoke` make this call
    /// themselves. Call it after the last store, and before a peer learns that it may read. It is
    /// needed where [`query`](Self::query) has `lmr_sync_req`; elsewhere it is a memory fence.
    ///
    /// ```
    /// # use dat_host::{Access, Result};
    /// # fn main() -> Result<()> {
    /// use std::sync::atomic::Ordering;
    ///
    /// # let adapter = dat_host::Adapter::open("mock://exposed")?;
    /// let window = adapter.zone()?.window(vec![0_u8; 4096], Access::READ | Access::WRITE)?;
    /// window.atomics()[7].store(1, Ordering::Relaxed);
    /// adapter.sync_rdma_read(&[window.exposed(7..8)?])?;
    /// // After a message tells that peers have written two ranges:
    /// adapter.sync_rdma_write(&[window.exposed(..64)?, window.exposed(1024..2048)?])?;
    /// let first = window.atomics()[0].load(Ordering::Relaxed);
    /// # let _ = first;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Refused`](crate::Error::Refused) INVALID_HANDLE: a range is of another adapter; nothing
    ///   was synchronised.
    /// - [`Closed`](crate::Error::Closed): the adapter is closed.
    pub fn sync_rdma_read(&self, ranges: &[Exposed<'_>]) -> Result<()> {
        self.synchronise(SyncDirection::RdmaRead, ranges)
    }

    /// Shows RDMA Writes of peers to the program (`dat_lmr_sync_rdma_write`).
    ///
    /// Call it after a message tells that a peer has written, and before the program loads or
    /// stores; also after a store to memory that a peer is going to write. Otherwise as
    /// [`sync_rdma_read`](Self::sync_rdma_read).
    ///
    /// # Errors
    /// Those of `sync_rdma_read`.
    pub fn sync_rdma_write(&self, ranges: &[Exposed<'_>]) -> Result<()> {
        self.synchronise(SyncDirection::RdmaWrite, ranges)
    }

    fn synchronise(&self, direction: SyncDirection, ranges: &[Exposed<'_>]) -> Result<()> {
        for range in ranges {
            check_same_adapter(self.state(), &range.adapter)?;
        }
        for some in ranges.chunks(SEGMENTS) {
            let mut segments = [LmrTriplet::default(); SEGMENTS];
            for (segment, range) in segments.iter_mut().zip(some) {
                *segment = range.segment;
            }
            // Refused only once the close has deregistered the memory.
            let done = self.state().call_sync(direction, &segments[..some.len()]);
            done.map_err(|_| Error::Closed)?;
        }
        Ok(())
    }
}
