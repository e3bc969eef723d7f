//! Puts and gets of single buffers.

use core::sync::atomic::AtomicU8;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;

use super::call::CallOptions;
use super::entry::{Gets, Puts};
use super::{Direction, GetEntry, PutEntry, Source, Target, VectorError, VectorFlags};
use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::ImportId;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Copies bytes to a segment.
    ///
    /// In implicit mode the bytes are visible at the exporter when the call returns; this needs a
    /// barrier, see [`init_barrier`](Self::init_barrier). In explicit mode the transfer has ended,
    /// and closing a barrier reports its outcome.
    ///
    /// If the backend can access the exporter's memory and no transfer of the connection could be
    /// overtaken, the call stores the bytes there. Otherwise it is a transfer.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection, or its controller was released.
    /// - CONN_ABORTED: the segment is gone, before or during the call.
    /// - PERM_DENIED: the connection may not write.
    /// - BAD_OFFSET: the offset exceeds the segment, or the range leaves the mapping.
    /// - BAD_LENGTH: the range exceeds the segment.
    /// - BARRIER_UNINITIALIZED: the connection is in implicit mode and has no barrier.
    /// - INSUFFICIENT_RESOURCES: the memory cannot be registered, or tables are exhausted.
    /// - BARRIER_FAILURE: the transfer failed, in implicit mode.
    /// - INTERRUPTED: `wait` was interrupted.
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
        single(self.run(import, Puts(&[entry]), options(Direction::Put), wait))
    }

    /// Copies bytes from a segment.
    ///
    /// # Errors
    /// As [`put`](Self::put), where PERM_DENIED means that the connection may not read.
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
        single(self.run(import, Gets(&mut [entry]), options(Direction::Get), wait))
    }

    /// As [`put`](Self::put), from memory that other code may change meanwhile.
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
        single(self.run(import, Puts(&[entry]), options(Direction::Put), wait))
    }

    /// As [`get`](Self::get), to memory that other code may use meanwhile.
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
        single(self.run(import, Gets(&mut [entry]), options(Direction::Get), wait))
    }
}

const fn options(direction: Direction) -> CallOptions {
    CallOptions {
        direction,
        flags: VectorFlags::empty(),
        single: true,
        waited: true,
    }
}

/// Converts the outcome of a vector to that of a single access.
///
/// A single access has no residual, and names no controller that could be released.
fn single(outcome: core::result::Result<(), VectorError>) -> Result<()> {
    outcome.map_err(|failure| match failure.error {
        RsmError::BadControllerHandle => RsmError::BadSegmentHandle,
        error => error,
    })
}
