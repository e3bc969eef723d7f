//! Exported segments.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use dat_core::backend::SyncDirection;
use dat_rsm::{AccessEntry, ExportFlags, ExportId, RsmError, SegmentId, SignalFlags};

use super::call::{Call, signaled_within};
use super::held::Held;
use super::{Guard, Site};
use crate::error::{Error, Failed, Result};
use crate::memory::{Stable, copies};
use crate::remote::resolve_range;

/// Memory that peers import: no slices, only copies and atomics.
///
/// Dropping it takes the segment back from its importers, on a thread of the node.
///
/// The bytes cannot be borrowed as a slice:
///
/// ```compile_fail,E0608
/// # fn slice(export: dat_host::rsm::Export<Vec<u8>>) {
/// println!("{}", export[0]);
/// # }
/// ```
///
/// Nor are they there after the segment is destroyed:
///
/// ```compile_fail,E0382
/// # fn destroy(export: dat_host::rsm::Export<Vec<u8>>) {
/// let destroyed = export.destroy();
/// println!("{}", export.len());
/// # drop(destroyed);
/// # }
/// ```
pub struct Export<M: Stable>(Held<M, ExportId>);

impl<M: Stable> Export<M> {
    pub(super) fn new(guard: &Arc<Guard>, value: M) -> Result<Self, Failed<M>> {
        let held = Held::new(guard, value, |site, region| {
            let flags = ExportFlags::empty();
            let (address, length) = (region.address(), region.len() as u64);
            let created = site.engine().export_create(site.controller, region, flags);
            created.map_err(|error| {
                site.error_of_memory(error, &[("address", address), ("length", length)])
            })
        })?;
        Ok(Self(held))
    }

    fn site(&self) -> &Arc<Site> {
        &self.0.guard().0
    }

    /// Returns the segment of the engine.
    pub fn id(&self) -> ExportId {
        self.0.id()
    }

    /// Publishes the segment under an id, and returns it.
    ///
    /// Ids of programs are 0x40_0000 to 0x7fff_ffff. For 0 the node chooses one from 0x8000_0000
    /// on.
    ///
    /// With an empty list all nodes may read, and processes of the exporter's user may write:
    /// [`credentials`](super::Opening::credentials).
    ///
    /// # Errors
    /// [`AccessList`](crate::Error::AccessList): more entries than nodes, an unknown node, or bits
    /// outside of 0666. [`SharedMemory`](crate::Error::SharedMemory)
    /// - SEG_ALREADY_PUBLISHED, SEGID_IN_USE, RESERVED_SEGID: the segment has an id, or the id is
    ///   taken.
    /// - INSUFFICIENT_RESOURCES: no id is left.
    pub fn publish(&self, id: SegmentId, access: &[AccessEntry]) -> Result<SegmentId> {
        let engine = self.site().engine();
        let published = engine.export_publish(self.id(), id, access);
        published.map_err(|error| {
            let fault = match error {
                RsmError::BadAccessList => engine.access_fault(self.id(), access),
                _ => None,
            };
            fault.map_or_else(|| error.into(), Error::AccessList)
        })
    }

    /// Takes the segment back from its importers; it may be published again.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) SEG_NOT_PUBLISHED: it has no id.
    pub fn unpublish(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::freeing(self.site(), move |site, sleep| {
            Ok(site.engine().export_unpublish(id, sleep)?)
        })
    }

    /// Signals all importers.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) INSUFFICIENT_RESOURCES: tables are exhausted.
    pub fn signal(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(self.site(), move |site, sleep| {
            let flags = SignalFlags::empty();
            Ok(site.engine().signal_post(id.into(), flags, sleep)?)
        })
    }

    /// Waits for a signal of an importer, and takes it.
    ///
    /// A future that is dropped may still take one; use [`try_signaled`](Self::try_signaled) to
    /// poll.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the segment was destroyed.
    pub fn signaled(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(self.site(), move |site, sleep| {
            Ok(site.engine().signal_wait(id.into(), None, sleep)?)
        })
    }

    /// As [`signaled`](Self::signaled), for at most `timeout`; returns false if no signal came.
    ///
    /// # Errors
    /// Those of `signaled`.
    pub fn signaled_within(&self, timeout: Duration) -> Call<Result<bool>> {
        let id = self.id();
        Call::new(self.site(), move |site, sleep| {
            signaled_within(site, id.into(), timeout, sleep)
        })
    }

    /// Takes a signal, if there is one.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the segment was destroyed.
    pub fn try_signaled(&self) -> Result<bool> {
        Ok(self.site().engine().signal_take(self.id().into())?)
    }

    /// Shows stores of the program to gets that are under way.
    ///
    /// For a program that uses the [atomics](Self::atomics) without a signal: [`load`](Self::load)
    /// and [`store`](Self::store) make this call themselves, and calls of importers begin with it.
    /// It is needed where the adapter has `lmr_sync_req`; elsewhere it only checks the range.
    ///
    /// # Errors
    /// - [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the segment.
    /// - [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the segment was destroyed.
    pub fn sync_rdma_read(&self, range: impl RangeBounds<usize>) -> Result<()> {
        self.sync(SyncDirection::RdmaRead, range)
    }

    /// Shows puts to the program that no signal and no end of an importer's call has shown yet.
    ///
    /// Otherwise as [`sync_rdma_read`](Self::sync_rdma_read).
    ///
    /// # Errors
    /// Those of `sync_rdma_read`.
    pub fn sync_rdma_write(&self, range: impl RangeBounds<usize>) -> Result<()> {
        self.sync(SyncDirection::RdmaWrite, range)
    }

    fn sync(&self, direction: SyncDirection, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, length) = resolve_range(range, self.len())?;
        let engine = self.site().engine();
        Ok(engine.export_sync(self.id(), direction, offset as u64, length as u64)?)
    }

    fn synchronise(&self, direction: SyncDirection, offset: usize, length: usize) {
        if self.site().non_coherent {
            // Fails only if the node is closed, which took the segment back.
            let _ = self.sync(direction, offset..offset + length);
        }
    }

    /// Returns the bytes as atomics, which importers change at any moment.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.0.atomics()
    }

    /// Takes the segment back from its importers; returns its memory.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory): the segment is in use by a poll, or the node
    /// is closing. The memory is then kept until the node is closed.
    pub fn destroy(self) -> Call<Result<M>> {
        self.0.free()
    }
}

copies!([M: Stable] Export<M>);

impl<M: Stable> fmt::Debug for Export<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}
