//! Imported segments, and the barriers of their transfers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dat_rsm::{
    BarrierId, BarrierMode, BarrierScope, GetEntry, ImportId, NodeId, Permission, PutEntry,
    RsmError, SegmentId, SignalFlags, VectorFlags,
};

use super::call::{Call, signaled_within};
use super::engine::{Interrupt, Sleep};
use super::entry::{FailedVector, Get, GetMemory, Moved, Put, PutMemory};
use super::{Guard, Site};
use crate::error::{Failed, Result};

/// A connection to a segment of a node.
///
/// In implicit mode, which is the first, a put that has ended is visible to the exporter. In
/// explicit mode a [`Barrier`] tells. Dropping it disconnects, on a thread of the node.
pub struct Import {
    guard: Arc<Guard>,
    /// The exporter's node.
    node: NodeId,
    /// `None` after `disconnect`.
    id: Option<ImportId>,
    /// The barrier that the interface demands of puts and gets in implicit mode.
    _barrier: Option<Barrier>,
}

impl Import {
    pub(super) fn connect(
        guard: &Arc<Guard>,
        node: NodeId,
        segment: SegmentId,
        permission: Permission,
    ) -> Call<Result<Self>> {
        let guard = Arc::clone(guard);
        let site = Arc::clone(&guard.0);
        Call::new(&site, move |site, sleep| {
            let engine = site.engine();
            let id = engine
                .import_connect(site.controller, node, segment, permission, sleep)
                .map_err(|error| site.error_of(node, error))?;
            let mut import = Self {
                guard,
                node,
                id: Some(id),
                _barrier: None,
            };
            import._barrier = Some(import.barrier(BarrierScope::Segment)?);
            Ok(import)
        })
    }

    /// Returns the connection of the engine.
    pub fn id(&self) -> ImportId {
        match self.id {
            Some(id) => id,
            None => unreachable!("only `disconnect` and `drop` take the connection"),
        }
    }

    const fn take_id(&mut self) -> Option<ImportId> {
        self.id.take()
    }

    /// Returns the length of the segment in bytes.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the node is closed.
    pub fn length(&self) -> Result<u64> {
        Ok(self.guard.0.engine().import_length(self.id())?)
    }

    /// Copies bytes to the segment, from `offset` on.
    ///
    /// # Errors
    /// Returns the memory, with [`SharedMemory`](crate::Error::SharedMemory)
    /// - CONN_ABORTED: the exporter took the segment back or ended.
    /// - PERM_DENIED: the connection may not write.
    /// - BAD_OFFSET, BAD_LENGTH: the range exceeds the segment.
    /// - BARRIER_FAILURE: the transfer failed.
    /// - INSUFFICIENT_RESOURCES: tables are exhausted.
    pub fn put<M>(&self, offset: u64, memory: M) -> Call<Result<M, Failed<M>>>
    where
        M: AsRef<[u8]> + Send + 'static,
    {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            match site.engine().put(id, offset, memory.as_ref(), sleep) {
                Ok(()) => Ok(memory),
                Err(error) => Err(Failed::new(error, memory)),
            }
        })
    }

    /// Copies bytes of the segment, from `offset` on; fills the memory.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); PERM_DENIED: the connection may not read.
    pub fn get<M>(&self, offset: u64, mut memory: M) -> Call<Result<M, Failed<M>>>
    where
        M: AsMut<[u8]> + Send + 'static,
    {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            match site.engine().get(id, offset, memory.as_mut(), sleep) {
                Ok(()) => Ok(memory),
                Err(error) => Err(Failed::new(error, memory)),
            }
        })
    }

    /// Puts several ranges in order (`rsm_memseg_import_putv`).
    ///
    /// The memory is bytes, or parts of a [`LocalMemory`](super::LocalMemory). A refused entry ends
    /// the vector before it starts; earlier entries stay done.
    ///
    /// # Errors
    /// Returns the entries, and which of them failed, with the errors of [`put`](Self::put), and
    /// - BAD_SGIO: there are no entries, or the local memory of one is freed or of another node.
    /// - REMOTE_NODE_UNREACHABLE: the connection broke during the signal, which may have arrived.
    ///
    /// As an [`Error`](crate::Error), it is a [`Vector`](crate::Error::Vector).
    pub fn putv<M: PutMemory>(
        &self,
        entries: Vec<Put<M>>,
        flags: VectorFlags,
    ) -> Call<Moved<Put<M>>> {
        let (id, node) = (self.id(), self.node);
        Call::new(&self.guard.0, move |site, sleep| {
            let puts: Vec<PutEntry<'_>> = entries.iter().map(Put::entry).collect();
            match site.engine().putv(id, &puts, flags, sleep) {
                Ok(()) => Ok(entries),
                Err(error) => Err(FailedVector {
                    error,
                    entries,
                    node,
                }),
            }
        })
    }

    /// Gets several ranges in order (`rsm_memseg_import_getv`).
    ///
    /// As [`putv`](Self::putv), in the other direction.
    ///
    /// # Errors
    /// Those of `putv`; PERM_DENIED: the connection may not read.
    pub fn getv<M: GetMemory>(
        &self,
        mut entries: Vec<Get<M>>,
        flags: VectorFlags,
    ) -> Call<Moved<Get<M>>> {
        let (id, node) = (self.id(), self.node);
        Call::new(&self.guard.0, move |site, sleep| {
            let mut gets: Vec<GetEntry<'_>> = entries.iter_mut().map(Get::entry).collect();
            match site.engine().getv(id, &mut gets, flags, sleep) {
                Ok(()) => Ok(entries),
                Err(error) => Err(FailedVector {
                    error,
                    entries,
                    node,
                }),
            }
        })
    }

    /// Maps a part of the segment, so that puts and gets inside it are stores and loads.
    ///
    /// A connection has at most one mapping. While it lasts, puts and gets must stay inside it;
    /// vectors need not.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory)
    /// - MAP_FAILED: the backend cannot access the memory of the exporter. That of `mock://` can.
    /// - SEG_ALREADY_MAPPED, BAD_PERMS, BAD_OFFSET, BAD_LENGTH: there is a mapping, or the
    ///   connection has fewer rights, or the segment has fewer bytes.
    /// - CONN_ABORTED: the segment is gone.
    ///
    /// [`Unaligned`](crate::Error::Unaligned): the offset is no multiple of 4096.
    pub fn map(&self, permission: Permission, offset: u64, length: u64) -> Result<()> {
        let site = &self.guard.0;
        let mapped = site
            .engine()
            .import_map(self.id(), permission, offset, length);
        mapped.map_err(|error| site.error_of_memory(error, &[("offset", offset)]))
    }

    /// Ends the mapping.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) SEG_NOT_MAPPED: there is none.
    pub fn unmap(&self) -> Result<()> {
        Ok(self.guard.0.engine().import_unmap(self.id())?)
    }

    /// Chooses who completes transfers: each call, or barriers.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the node is closed.
    pub fn set_mode(&self, mode: BarrierMode) -> Result<()> {
        Ok(self.guard.0.engine().set_mode(self.id(), mode)?)
    }

    /// Makes a closed barrier.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) INSUFFICIENT_RESOURCES: the table is full.
    pub fn barrier(&self, scope: BarrierScope) -> Result<Barrier> {
        let id = self.guard.0.engine().init_barrier(self.id(), scope)?;
        Ok(Barrier {
            guard: Arc::clone(&self.guard),
            id,
        })
    }

    /// Signals the exporter.
    ///
    /// # Errors
    /// - [`SharedMemory`](crate::Error::SharedMemory) CONN_ABORTED: the exporter took the segment
    ///   back or ended.
    /// - [`NodeUnreachable`](crate::Error::NodeUnreachable): the connection broke; the signal may
    ///   have arrived.
    pub fn signal(&self) -> Call<Result<()>> {
        let (id, node) = (self.id(), self.node);
        Call::new(&self.guard.0, move |site, sleep| {
            let flags = SignalFlags::empty();
            let posted = site.engine().signal_post(id.into(), flags, sleep);
            posted.map_err(|error| site.error_of(node, error))
        })
    }

    /// Waits for a signal of the exporter, and takes it.
    ///
    /// A future that is dropped may still take one; use [`try_signaled`](Self::try_signaled) to
    /// poll.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) CONN_ABORTED: the exporter took the segment
    /// back, and no signal is left.
    pub fn signaled(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            Ok(site.engine().signal_wait(id.into(), None, sleep)?)
        })
    }

    /// As [`signaled`](Self::signaled), for at most `timeout`; returns false if no signal came.
    ///
    /// # Errors
    /// Those of `signaled`.
    pub fn signaled_within(&self, timeout: Duration) -> Call<Result<bool>> {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            signaled_within(site, id.into(), timeout, sleep)
        })
    }

    /// Takes a signal, if there is one.
    ///
    /// # Errors
    /// Those of [`signaled`](Self::signaled).
    pub fn try_signaled(&self) -> Result<bool> {
        Ok(self.guard.0.engine().signal_take(self.id().into())?)
    }

    /// Ends the mapping, if there is one, and disconnects after the pending transfers.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the node is closed.
    pub fn disconnect(mut self) -> Call<Result<()>> {
        let site = Arc::clone(&self.guard.0);
        // A method call, so that the closure owns the import, which disconnects in any case.
        Call::freeing(&site, move |site, sleep| match self.take_id() {
            Some(id) => Ok(disconnect(site, id, sleep)?),
            None => unreachable!("an import has its connection"),
        })
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if let Some(id) = self.take_id() {
            let site = Arc::clone(&self.guard.0);
            // Without a thread the connection stays until the node is closed.
            self.guard.0.submit(Box::new(move || {
                let mut sleep = Sleep::new(&site.sleepers, Interrupt::Never);
                // The error is that of a node that closes meanwhile.
                let _ = disconnect(&site, id, &mut sleep);
            }));
        }
    }
}

/// Disconnects; the engine keeps a connection that has a mapping.
fn disconnect(site: &Site, id: ImportId, sleep: &mut Sleep) -> Result<(), RsmError> {
    match site.engine().import_unmap(id) {
        Ok(()) | Err(RsmError::SegmentNotMapped) => site.engine().import_disconnect(id, sleep),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A barrier: completes and orders the transfers of an [`Import`] in explicit mode.
pub struct Barrier {
    guard: Arc<Guard>,
    id: BarrierId,
}

impl Barrier {
    /// Starts a span of transfers, or restarts it.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory) BAD_SEG_HNDL: the import is gone.
    pub fn open(&self) -> Result<()> {
        Ok(self.guard.0.engine().open_barrier(self.id)?)
    }

    /// Makes the writes of the span so far visible before later transfers start.
    ///
    /// # Errors
    /// Those of [`close`](Self::close).
    pub fn order(&self) -> Call<Result<()>> {
        let id = self.id;
        Call::new(&self.guard.0, move |site, sleep| {
            Ok(site.engine().order_barrier(id, sleep)?)
        })
    }

    /// Ends the span: its transfers are done and visible.
    ///
    /// # Errors
    /// [`SharedMemory`](crate::Error::SharedMemory)
    /// - BARRIER_NOT_OPENED: no span has started.
    /// - BARRIER_FAILURE: a transfer failed; repeat all transfers of the span.
    /// - CONN_ABORTED: the segment was taken back during the span.
    /// - BAD_SEG_HNDL: the import is gone.
    pub fn close(&self) -> Call<Result<()>> {
        let id = self.id;
        Call::new(&self.guard.0, move |site, sleep| {
            Ok(site.engine().close_barrier(id, sleep)?)
        })
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // Fails only if the node has freed it.
        let _ = self.guard.0.engine().destroy_barrier(self.id);
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
