//! Exported segments.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use dat_core::sync::{load_bytes, store_bytes};
use dat_rsm::{AccessEntry, ExportFlags, ExportId, RsmError, SegmentId, SignalFlags};

use super::call::Call;
use super::engine::Sleep;
use super::{Guard, Site};
use crate::error::{Error, Failed, Result};
use crate::memory::{Pinned, Stable};

/// A value and the segment of its memory; both end together.
///
/// It is boxed once, so the value does not move while peers may access its memory.
struct Segment<M: Stable> {
    value: M,
    memory: Pinned,
    id: ExportId,
}

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
pub struct Export<M: Stable> {
    guard: Arc<Guard>,
    /// `None` after `destroy`.
    segment: Option<Box<Segment<M>>>,
}

impl<M: Stable> Export<M> {
    pub(super) fn new(guard: &Arc<Guard>, value: M) -> Result<Self, Failed<M>> {
        let site = &guard.0;
        let mut segment = Box::new(Segment {
            value,
            memory: Pinned::EMPTY,
            id: ExportId::from_handle(dat_rsm::Handle::NULL),
        });
        segment.memory = Pinned::of(&mut segment.value);
        let region = segment.memory.to_register();
        let flags = ExportFlags::empty();
        match site.engine.export_create(site.controller, region, flags) {
            Ok(id) => segment.id = id,
            Err(error) => return Err(Failed::new(error, segment.value)),
        }
        Ok(Self {
            guard: Arc::clone(guard),
            segment: Some(segment),
        })
    }

    fn segment(&self) -> &Segment<M> {
        match &self.segment {
            Some(segment) => segment,
            None => unreachable!("only `destroy` and `drop` take the segment"),
        }
    }

    /// Returns the segment of the engine.
    pub fn id(&self) -> ExportId {
        self.segment().id
    }

    /// Publishes the segment under an id, and returns it; for 0 the node chooses one.
    ///
    /// With an empty list all nodes may read.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory)
    /// - SEG_ALREADY_PUBLISHED, SEGID_IN_USE, RESERVED_SEGID: the segment has an id, or the id is
    ///   taken.
    /// - BAD_ACL: an unknown node, or bits above 0666.
    /// - INSUFFICIENT_RESOURCES: no id is left.
    pub fn publish(&self, id: SegmentId, access: &[AccessEntry]) -> Result<SegmentId> {
        let engine = &self.guard.0.engine;
        Ok(engine.export_publish(self.id(), id, access)?)
    }

    /// Takes the segment back from its importers; it may be published again.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory) SEG_NOT_PUBLISHED: it has no id.
    pub fn unpublish(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            Ok(site.engine.export_unpublish(id, sleep)?)
        })
    }

    /// Signals all importers.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory) INSUFFICIENT_RESOURCES: tables are exhausted.
    pub fn signal(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            let flags = SignalFlags::empty();
            Ok(site.engine.signal_post(id.into(), flags, sleep)?)
        })
    }

    /// Waits for a signal of an importer, and takes it.
    ///
    /// A future that is dropped may still take one; use [`try_signaled`](Self::try_signaled) to
    /// poll.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory) BAD_SEG_HNDL: the segment was destroyed.
    pub fn signaled(&self) -> Call<Result<()>> {
        let id = self.id();
        Call::new(&self.guard.0, move |site, sleep| {
            Ok(site.engine.signal_wait(id.into(), sleep)?)
        })
    }

    /// Takes a signal, if there is one.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory) BAD_SEG_HNDL: the segment was destroyed.
    pub fn try_signaled(&self) -> Result<bool> {
        Ok(self.guard.0.engine.signal_take(self.id().into())?)
    }

    /// Returns the bytes as atomics, which importers change at any moment.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.segment().memory.atomics()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.segment().memory.len()
    }

    /// Returns true if there are no bytes, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `offset` on; all of `into`.
    ///
    /// # Errors
    /// [`OutOfRange`](Error::OutOfRange): the segment has fewer bytes. Nothing is copied.
    pub fn load(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        load_bytes(self.range(offset, into.len())?, into);
        Ok(())
    }

    /// Copies bytes in, to `offset`; all of `from`.
    ///
    /// # Errors
    /// [`OutOfRange`](Error::OutOfRange): the segment has fewer bytes. Nothing is copied.
    pub fn store(&self, offset: usize, from: &[u8]) -> Result<()> {
        store_bytes(self.range(offset, from.len())?, from);
        Ok(())
    }

    fn range(&self, offset: usize, length: usize) -> Result<&[AtomicU8]> {
        let end = offset.saturating_add(length);
        let found = self.atomics().get(offset..end);
        found.ok_or_else(|| Error::OutOfRange {
            start: offset as u64,
            end: end as u64,
            length: self.len() as u64,
        })
    }

    /// Takes the segment back from its importers; returns its memory.
    ///
    /// # Errors
    /// [`SharedMemory`](Error::SharedMemory): the segment is in use by a poll, or the node is
    /// closing. The memory is then kept until the node is closed.
    pub fn destroy(mut self) -> Call<Result<M>> {
        let site = Arc::clone(&self.guard.0);
        // The closure owns the export, which destroys its segment in any case.
        Call::new(&site, move |_, sleep| match self.take() {
            Some(segment) => Ok(segment.end(sleep)?),
            None => unreachable!("an export has its segment"),
        })
    }

    fn take(&mut self) -> Option<Unended<M>> {
        let segment = self.segment.take()?;
        Some(Unended {
            site: Arc::clone(&self.guard.0),
            segment: Some(segment),
        })
    }
}

impl<M: Stable> Drop for Export<M> {
    fn drop(&mut self) {
        if let Some(segment) = self.take() {
            let pool = Arc::clone(&self.guard.0.pool);
            // Without a thread the memory stays with the node.
            let _ = pool.submit(Box::new(move || {
                let mut sleep = Sleep::new(&segment.site.sleepers, false);
                // The error is that of a node that closes meanwhile.
                drop(segment.end(&mut sleep));
            }));
        }
    }
}

/// A segment to destroy; unless that succeeds, its memory stays with the node.
struct Unended<M: Stable> {
    site: Arc<Site>,
    segment: Option<Box<Segment<M>>>,
}

impl<M: Stable> Unended<M> {
    /// Destroys the segment; returns its memory, or keeps it with the node.
    fn end(mut self, sleep: &mut Sleep) -> Result<M, RsmError> {
        let Some(segment) = &self.segment else {
            unreachable!("only this function takes the segment");
        };
        self.site.engine.export_destroy(segment.id, sleep)?;
        match self.segment.take() {
            Some(segment) => Ok(segment.value),
            None => unreachable!("only this function takes the segment"),
        }
    }
}

impl<M: Stable> Drop for Unended<M> {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.site.keep(segment);
        }
    }
}

impl<M: Stable> fmt::Debug for Export<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}
