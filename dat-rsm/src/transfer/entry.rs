//! Entries of vectors, and their status.

use core::fmt;
use core::sync::atomic::AtomicU8;

use bitflags::bitflags;
use dat_core::memory::Region;

use crate::borrow;
use crate::error::RsmError;
use crate::id::LocalMemoryId;
use crate::unreached::Unreached;

bitflags! {
    /// Options of a vector; unknown bits are ignored (`Spec: RSMPV-75`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VectorFlags: u32 {
        /// Posts one signal to the exporter's segment if all entries succeed (`Spec: RSMPV-70`).
        const IMPLICIT_SIGPOST = 0x01;
        /// The signal is dropped if the exporter has one pending; alone, it does nothing.
        const SIGPOST_NO_ACCUMULATE = 0x02;
        const _ = !0;
    }
}

/// Source of a put.
#[derive(Clone, Copy, Debug)]
pub enum Source<'m> {
    /// Registered memory.
    Handle(LocalMemoryId),
    /// Plain memory, registered for this call.
    Bytes(&'m [u8]),
    /// Memory that other code may change meanwhile, registered for this call.
    Shared(&'m [AtomicU8]),
}

/// Target of a get.
#[derive(Debug)]
pub enum Target<'m> {
    /// Registered memory.
    Handle(LocalMemoryId),
    /// Plain memory, registered for this call.
    Bytes(&'m mut [u8]),
    /// Memory that other code may use meanwhile, registered for this call.
    Shared(&'m [AtomicU8]),
}

/// An entry of a putv.
///
/// It moves `length` bytes from `local_offset` of the source to `remote_offset` of the segment.
#[derive(Clone, Copy, Debug)]
pub struct PutEntry<'m> {
    /// Source of the bytes.
    pub local: Source<'m>,
    /// Offset in the source.
    pub local_offset: u64,
    /// Offset from the base of the segment.
    pub remote_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// An entry of a getv.
///
/// It moves `length` bytes from `remote_offset` of the segment to `local_offset` of the target.
#[derive(Debug)]
pub struct GetEntry<'m> {
    /// Target of the bytes.
    pub local: Target<'m>,
    /// Offset in the target.
    pub local_offset: u64,
    /// Offset from the base of the segment.
    pub remote_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// An entry of a vector that does not block.
///
/// It needs registered memory, because the call returns before the bytes move.
#[derive(Clone, Copy, Debug)]
pub struct HandleEntry {
    /// Registered memory.
    pub local: LocalMemoryId,
    /// Offset in the local memory.
    pub local_offset: u64,
    /// Offset from the base of the segment.
    pub remote_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Status of an entry of a failed vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryStatus {
    /// The entry is done.
    Completed,
    /// The entry ended the vector; the content of its target is undefined.
    Failed(RsmError),
    /// The entry did not start, or does not count.
    NotCompleted,
}

/// Failure of a vector, and the entries left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorError {
    /// Reason for the failure.
    pub error: RsmError,
    /// Entries, counted from the end, that did not complete or start (`Spec: RSMPV-52`).
    ///
    /// The entry that failed is the first of them. 0 means that all bytes moved and the signal
    /// failed (`Spec: RSMPV-74`).
    pub residual: usize,
    /// Total number of entries.
    pub count: usize,
}

impl VectorError {
    /// Returns the status of an entry.
    ///
    /// Spec: RSMPV-52, RSMPV-54
    pub fn status(&self, index: usize) -> EntryStatus {
        let completed = self.count.saturating_sub(self.residual);
        match index.cmp(&completed) {
            core::cmp::Ordering::Less => EntryStatus::Completed,
            core::cmp::Ordering::Equal if self.residual != 0 => EntryStatus::Failed(self.error),
            _ => EntryStatus::NotCompleted,
        }
    }
}

impl fmt::Display for VectorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            error,
            residual,
            count,
        } = *self;
        let done = count.saturating_sub(residual);
        match error {
            // Errors of an entry, and not of the connection.
            RsmError::BadOffset
            | RsmError::BadLength
            | RsmError::BadMemoryAlignment
            | RsmError::BadLocalMemoryHandle
            | RsmError::BadScatterGather
            | RsmError::BadAddress
            | RsmError::PermissionDenied
                if residual > 0 =>
            {
                let entry = done.saturating_add(1);
                write!(formatter, "entry {entry} of {count}: {error}")
            }
            RsmError::RemoteNodeUnreachable if residual == 0 => {
                let reason = Unreached::Broken;
                write!(formatter, "{reason}; {done} of {count} entries are done")
            }
            _ => write!(formatter, "{error}; {done} of {count} entries are done"),
        }
    }
}

impl core::error::Error for VectorError {}

impl From<VectorError> for RsmError {
    fn from(error: VectorError) -> Self {
        error.error
    }
}

/// Local memory, offsets and length of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryArgs {
    pub(crate) local: Local,
    pub(crate) local_offset: u64,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
}

/// Memory that an entry names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    Handle(LocalMemoryId),
    /// Memory that is registered for the call; its length in bytes.
    Immediate(u64),
}

/// Entries of any kind.
pub(crate) trait Entries {
    fn count(&self) -> usize;

    fn args(&self, index: usize) -> Option<EntryArgs>;

    /// Returns the bytes that an immediate entry moves.
    ///
    /// They may be registered as long as the entries are borrowed. `None` for handles, and for a
    /// range outside the memory.
    fn region(&mut self, index: usize) -> Option<Region>;
}

/// Returns the range of its local memory that an entry moves.
fn range(args: &EntryArgs) -> Option<core::ops::Range<usize>> {
    let start = usize::try_from(args.local_offset).ok()?;
    let length = usize::try_from(args.length).ok()?;
    Some(start..start.checked_add(length)?)
}

pub(crate) struct Puts<'e, 'm>(pub(crate) &'e [PutEntry<'m>]);

impl Entries for Puts<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn args(&self, index: usize) -> Option<EntryArgs> {
        let entry = self.0.get(index)?;
        Some(EntryArgs {
            local: match entry.local {
                Source::Handle(handle) => Local::Handle(handle),
                Source::Bytes(bytes) => Local::Immediate(bytes.len() as u64),
                Source::Shared(bytes) => Local::Immediate(bytes.len() as u64),
            },
            local_offset: entry.local_offset,
            remote_offset: entry.remote_offset,
            length: entry.length,
        })
    }

    fn region(&mut self, index: usize) -> Option<Region> {
        let range = range(&self.args(index)?)?;
        match self.0.get(index)?.local {
            Source::Handle(_) => None,
            Source::Bytes(bytes) => Some(borrow::readable(bytes.get(range)?)),
            Source::Shared(bytes) => Some(borrow::shared(bytes.get(range)?)),
        }
    }
}

pub(crate) struct Gets<'e, 'm>(pub(crate) &'e mut [GetEntry<'m>]);

impl Entries for Gets<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn args(&self, index: usize) -> Option<EntryArgs> {
        let entry = self.0.get(index)?;
        Some(EntryArgs {
            local: match &entry.local {
                Target::Handle(handle) => Local::Handle(*handle),
                Target::Bytes(bytes) => Local::Immediate(bytes.len() as u64),
                Target::Shared(bytes) => Local::Immediate(bytes.len() as u64),
            },
            local_offset: entry.local_offset,
            remote_offset: entry.remote_offset,
            length: entry.length,
        })
    }

    fn region(&mut self, index: usize) -> Option<Region> {
        let range = range(&self.args(index)?)?;
        match &mut self.0.get_mut(index)?.local {
            Target::Handle(_) => None,
            Target::Bytes(bytes) => Some(borrow::exclusive(bytes.get_mut(range)?)),
            Target::Shared(bytes) => Some(borrow::shared(bytes.get(range)?)),
        }
    }
}

pub(crate) struct Handles<'e>(pub(crate) &'e [HandleEntry]);

impl Entries for Handles<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn args(&self, index: usize) -> Option<EntryArgs> {
        let entry = self.0.get(index)?;
        Some(EntryArgs {
            local: Local::Handle(entry.local),
            local_offset: entry.local_offset,
            remote_offset: entry.remote_offset,
            length: entry.length,
        })
    }

    fn region(&mut self, _index: usize) -> Option<Region> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// Spec: RSMPV-52, RSMPV-53, RSMPV-54, RSMPV-59
    #[test]
    fn the_residual_gives_the_status_of_each_entry() {
        let error = VectorError {
            error: RsmError::BadOffset,
            residual: 2,
            count: 3,
        };
        assert_eq!(error.status(0), EntryStatus::Completed);
        assert_eq!(error.status(1), EntryStatus::Failed(RsmError::BadOffset));
        assert_eq!(error.status(2), EntryStatus::NotCompleted);
        let signal = VectorError {
            residual: 0,
            ..error
        };
        assert!((0..3).all(|index| signal.status(index) == EntryStatus::Completed));
    }

    /// Spec: RSMPV-52, RSMPV-74
    #[test]
    fn the_text_names_the_entry_or_the_signal() {
        let text = |error, residual, count| {
            let error = VectorError {
                error,
                residual,
                count,
            };
            error.to_string()
        };
        assert_eq!(
            text(RsmError::BadOffset, 2, 3),
            "entry 2 of 3: offset out of range"
        );
        assert_eq!(
            text(RsmError::ConnectionAborted, 2, 3),
            "the connection was aborted; 1 of 3 entries are done"
        );
        assert_eq!(
            text(RsmError::RemoteNodeUnreachable, 0, 3),
            "the connection broke during the signal, which may have arrived; \
            3 of 3 entries are done"
        );
        let none = text(RsmError::BadScatterGather, 0, 0);
        assert!(none.ends_with("; 0 of 0 entries are done"), "{none}");
    }
}
