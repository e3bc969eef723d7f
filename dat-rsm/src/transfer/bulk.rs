//! Single buffers.

use core::sync::atomic::AtomicU8;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use super::call::Manner;
use super::entry::{Gets, Puts};
use super::{Direction, GetEntry, PutEntry, Source, Target, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ImportId;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Copies bytes to a segment.
    ///
    /// In implicit mode they are visible at the exporter when the call returns; that takes a barrier to exist, see
    /// [`init_barrier`](Self::init_barrier). In explicit mode they have left, and closing a barrier tells the rest.
    ///
    /// Where the backend sees the exporter's memory, and nothing of the connection is on the way that they could overtake, they are
    /// stored there; otherwise this is a transfer.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no connection, or its controller was released.
    /// - CONN_ABORTED: the segment is gone, or went meanwhile.
    /// - PERM_DENIED: the connection may not write.
    /// - BAD_OFFSET: behind the end. BAD_LENGTH: beyond the end.
    /// - BARRIER_UNINITIALIZED: implicit mode without a barrier.
    /// - INSUFFICIENT_RESOURCES: memory cannot be registered, or tables are used up.
    /// - BARRIER_FAILURE: the transfer failed. INTERRUPTED: the wait was.
    ///
    /// Spec: RSMGP-01, RSMGP-05, RSMGP-07, RSMGP-08
    pub fn put<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        source: &[u8],
        wait: &mut W,
    ) -> Result<()> {
        if self.put_directly(import, offset, source, wait) {
            return Ok(());
        }
        let entry = PutEntry {
            local: Source::Bytes(source),
            local_offset: 0,
            remote_offset: offset,
            length: source.len() as u64,
        };
        single(self.run(import, Puts(&[entry]), manner(Direction::Put), wait))
    }

    /// Copies bytes from a segment.
    ///
    /// # Errors
    /// As [`put`](Self::put), where PERM_DENIED is for the right to read.
    ///
    /// Spec: RSMGP-01, RSMGP-05, RSMGP-07, RSMGP-08
    pub fn get<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        target: &mut [u8],
        wait: &mut W,
    ) -> Result<()> {
        if self.get_directly(import, offset, target, wait) {
            return Ok(());
        }
        let length = target.len() as u64;
        let entry = GetEntry {
            local: Target::Bytes(target),
            local_offset: 0,
            remote_offset: offset,
            length,
        };
        single(self.run(import, Gets(&mut [entry]), manner(Direction::Get), wait))
    }

    /// As [`put`](Self::put), of memory that others may change meanwhile.
    ///
    /// # Errors
    /// As `put`.
    ///
    /// Spec: RSMGP-01, RSMGP-05, RSMGP-07, RSMGP-08
    pub fn put_shared<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        source: &[AtomicU8],
        wait: &mut W,
    ) -> Result<()> {
        let entry = PutEntry {
            local: Source::Shared(source),
            local_offset: 0,
            remote_offset: offset,
            length: source.len() as u64,
        };
        single(self.run(import, Puts(&[entry]), manner(Direction::Put), wait))
    }

    /// As [`get`](Self::get), to memory that others may use meanwhile.
    ///
    /// # Errors
    /// As `get`.
    ///
    /// Spec: RSMGP-01, RSMGP-05, RSMGP-07, RSMGP-08
    pub fn get_shared<W: Wait>(
        &self,
        import: ImportId,
        offset: u64,
        target: &[AtomicU8],
        wait: &mut W,
    ) -> Result<()> {
        let entry = GetEntry {
            local: Target::Shared(target),
            local_offset: 0,
            remote_offset: offset,
            length: target.len() as u64,
        };
        single(self.run(import, Gets(&mut [entry]), manner(Direction::Get), wait))
    }
}

const fn manner(direction: Direction) -> Manner {
    Manner {
        direction,
        flags: VectorFlags::empty(),
        single: true,
        waited: true,
    }
}

/// Without a vector there is neither a residual nor a controller to name.
fn single(outcome: core::result::Result<(), VectorError>) -> Result<()> {
    outcome.map_err(|failure| match failure.error {
        RsmError::BadControllerHandle => RsmError::BadSegmentHandle,
        error => error,
    })
}
