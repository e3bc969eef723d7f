//! Vector transfers: putv and getv.

use std::array;
use std::sync::atomic::AtomicU8;

use dat_rsm::{
    GetEntry, Handle, ImportId, LocalMemoryId, PutEntry, Result, RsmError, Source, Target,
    VectorError, VectorFlags,
};

use super::process::{site_of, with_site};
use super::transfer;
use super::{Code, code, named};
use crate::boundary::{Access, IoVector, Out, Pages, ScatterGather, all_allow};
use crate::handles::CHandle;

/// `RSM_HANDLE_TYPE`.
const HANDLE: i32 = 1;
/// `RSM_VA_TYPE`.
const ADDRESS: i32 = 2;
/// `RSM_MAX_SGIOREQS`.
const MOST: usize = 16;

/// The local side of an entry.
#[derive(Clone, Copy)]
enum Local<'m> {
    Handle(LocalMemoryId),
    /// Exactly the bytes to transfer, from the offset on.
    Bytes(&'m [AtomicU8]),
}

/// An entry as the engine takes it.
#[derive(Clone, Copy)]
struct Entry<'m> {
    local: Local<'m>,
    local_offset: u64,
    remote_offset: u64,
    length: u64,
}

impl<'m> Entry<'m> {
    /// `pages` are those of the memory, if the system is to be asked about them.
    ///
    /// # Errors
    /// - BAD_SGIO: there is no such type.
    /// - BAD_ADDR: the memory does not exist, or does not allow the access.
    /// - BAD_LENGTH: the range does not fit in the address space.
    fn new(given: &'m IoVector, pages: Pages, needed: Access) -> Result<Self> {
        let (offset, length) = (given.local_offset, given.length);
        if given.kind == ADDRESS {
            let end = given.local.address().checked_add(offset);
            let fits = end.and_then(|end| end.checked_add(length)).is_some();
            if given.local.is_null() {
                return Err(RsmError::BadAddress);
            }
            if !fits {
                return Err(RsmError::BadLength);
            }
        }
        if !pages.allow(needed) {
            return Err(RsmError::BadAddress);
        }
        let (local, local_offset) = match given.kind {
            HANDLE => (Local::Handle(handle_of(given)), offset as u64),
            ADDRESS => {
                let bytes = given.local.bytes(offset, length);
                (Local::Bytes(bytes.ok_or(RsmError::BadLength)?), 0)
            }
            _ => return Err(RsmError::BadScatterGather),
        };
        Ok(Self {
            local,
            local_offset,
            remote_offset: given.remote_offset as u64,
            length: length as u64,
        })
    }

    /// Returns an entry that transfers nothing.
    const fn nothing() -> Self {
        Self {
            local: Local::Bytes(&[]),
            local_offset: 0,
            remote_offset: 0,
            length: 0,
        }
    }

    fn put(self) -> PutEntry<'m> {
        PutEntry {
            local: match self.local {
                Local::Handle(handle) => Source::Handle(handle),
                Local::Bytes(bytes) => Source::Shared(bytes),
            },
            local_offset: self.local_offset,
            remote_offset: self.remote_offset,
            length: self.length,
        }
    }

    fn get(self) -> GetEntry<'m> {
        GetEntry {
            local: match self.local {
                Local::Handle(handle) => Target::Handle(handle),
                Local::Bytes(bytes) => Target::Shared(bytes),
            },
            local_offset: self.local_offset,
            remote_offset: self.remote_offset,
            length: self.length,
        }
    }
}

/// Returns the local memory handle of an entry that has one.
fn handle_of(given: &IoVector) -> LocalMemoryId {
    LocalMemoryId::from_handle(Handle::from_raw(given.local.address() as u64))
}

/// Returns the pages of an entry's memory; none if the entry is refused whatever they are.
///
/// No device keeps the memory of a handle, which may have been unmapped since. `range_of` returns
/// its address and length.
fn pages_of(
    given: &IoVector,
    range_of: impl FnOnce(LocalMemoryId) -> Option<(u64, u64)>,
) -> Option<Pages> {
    let (offset, length) = (given.local_offset, given.length);
    let first = match given.kind {
        HANDLE => {
            let (first, available) = range_of(handle_of(given))?;
            let end = offset.checked_add(length)?;
            (end as u64 <= available).then_some(first as usize)?
        }
        ADDRESS if !given.local.is_null() => given.local.address(),
        _ => return None,
    };
    Pages::of(first.checked_add(offset)?, length)
}

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Put,
    Get,
}

/// `rsm_memseg_import_putv`.
///
/// Spec: RSMPV-01..15, RSMPV-50..61, RSMPV-70..75, RSMPV-E01..E07
pub fn putv(vector: Out<ScatterGather>) -> Code {
    run(vector, |io, known| moved(io, known, Direction::Put))
}

/// `rsm_memseg_import_getv`.
///
/// Spec: RSMPV-01..15, RSMPV-50..61, RSMPV-70..75, RSMPV-E01..E07
pub fn getv(vector: Out<ScatterGather>) -> Code {
    run(vector, |io, known| moved(io, known, Direction::Get))
}

/// Runs `transfer` on a vector, and stores the number of entries left.
fn run(
    vector: Out<ScatterGather>,
    transfer: impl FnOnce(&ScatterGather, Pages) -> std::result::Result<(), (RsmError, u64)>,
) -> Code {
    code(|| {
        if !vector.is_writable() {
            return Err(RsmError::BadScatterGather);
        }
        let io = vector.get().ok_or(RsmError::BadScatterGather)?;
        // A panic leaves this.
        vector.put_residual(io.request_count);
        let outcome = transfer(&io, vector.pages(1).unwrap_or(Pages::NONE));
        let residual = match &outcome {
            Ok(()) => 0,
            Err((_, residual)) => *residual,
        };
        // Only the residual is written (RSMPV-09, RSMPV-58).
        vector.put_residual(residual);
        outcome.map_err(|(error, _)| error)
    })
}

/// Transfers the entries; on failure returns the error and the number of entries left.
///
/// The `known` pages can be read and written.
#[expect(
    clippy::too_many_lines,
    reason = "`with_site` names the type of the engine in this block only"
)]
fn moved(
    io: &ScatterGather,
    known: Pages,
    direction: Direction,
) -> std::result::Result<(), (RsmError, u64)> {
    let count = io.request_count;
    let before = |error| (error, count);
    let import = named(io.remote_handle);
    let opened = site_of(import, RsmError::BadSegmentHandle).map_err(before)?;
    let import = ImportId::from_handle(import);
    with_site!(opened, site => {
        let engine = &site.engine;
        // Nothing is allocated: the heap may be exhausted.
        let go = |entries: &[Entry<'_>], flags| site.sleeping_lightly(|wait| {
            let nth = |at| entries.get(at).copied().unwrap_or(Entry::nothing());
            match direction {
                Direction::Put => {
                    let puts: [_; MOST] = array::from_fn(|at| nth(at).put());
                    let puts = puts.get(..entries.len()).unwrap_or_default();
                    engine.putv(import, puts, flags, wait)
                }
                Direction::Get => {
                    let mut gets: [_; MOST] = array::from_fn(|at| nth(at).get());
                    let gets = gets.get_mut(..entries.len()).unwrap_or_default();
                    engine.getv(import, gets, flags, wait)
                }
            }
            .map_err(Outcome::from)
        });
        let length = usize::try_from(count).ok().filter(|count| (1..=MOST).contains(count));
        let Some(length) = length.filter(|length| io.vector.is_readable_beside(*length, known)) else {
            // Errors of the handle come first; without entries the engine reports no others.
            let refusal = go(&[], VectorFlags::empty()).map_err(|outcome| outcome.error);
            let refusal = refusal.err().unwrap_or(RsmError::BadScatterGather);
            let bad_address = refusal == RsmError::BadScatterGather && length.is_some();
            return Err(before(if bad_address { RsmError::BadAddress } else { refusal }));
        };
        let given: [Option<IoVector>; MOST] =
            array::from_fn(|at| if at < length { io.vector.nth(at) } else { None });
        let needed = match direction {
            Direction::Put => Access::Read,
            Direction::Get => Access::Write,
        };
        let mut entries = [Entry::nothing(); MOST];
        let mut good = 0;
        let mut refused = None;
        // One system call for all entries; if it fails, the first faulty one is looked for.
        let pages: [Pages; MOST] = array::from_fn(|at| {
            let given = given.get(at).and_then(Option::as_ref).filter(|_| !site.pins_memory());
            let range_of = |local| engine.local_memory_range(local);
            given.and_then(|given| pages_of(given, range_of)).unwrap_or(Pages::NONE)
        });
        let mut sorted = pages;
        let asked = match all_allow(&mut sorted, known, needed) {
            true => [Pages::NONE; MOST],
            false => pages,
        };
        for ((given, pages), slot) in given.iter().flatten().zip(asked).zip(&mut entries) {
            match Entry::new(given, pages, needed) {
                Ok(entry) => *slot = entry,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            good += 1;
        }
        // A device only reports that it could not take the memory.
        let explained = |outcome: &Outcome, begun: usize| {
            let failed = given.get(begun.saturating_sub(outcome.residual)).copied().flatten();
            match failed.filter(|failed| failed.kind == ADDRESS) {
                Some(failed) => {
                    let part = (failed.local_offset, failed.length);
                    transfer::refused(outcome.error, failed.local, part, needed)
                }
                None => outcome.error,
            }
        };
        let Some(refused) = refused else {
            let flags = VectorFlags::from_bits_retain(io.flags);
            return go(entries.get(..good).unwrap_or_default(), flags).map_err(|outcome| {
                let error = explained(&outcome, length);
                (error, outcome.residual.min(length) as u64)
            });
        };
        // The entries before it are transferred as if it were not there; no signal is posted.
        let left = length.saturating_sub(good);
        // If there are none, one that transfers nothing has the errors of the connection.
        let before = entries.get(..good.max(1)).unwrap_or_default();
        Err(match go(before, VectorFlags::empty()) {
            Ok(()) => (refused, left as u64),
            Err(outcome) => {
                let residual = left.saturating_add(outcome.residual.min(good));
                (explained(&outcome, good), residual as u64)
            }
        })
    })
}

/// A failure of a vector, or the reason why it was not started.
struct Outcome {
    error: RsmError,
    residual: usize,
}

impl From<VectorError> for Outcome {
    fn from(failure: VectorError) -> Self {
        Self {
            error: failure.error,
            residual: failure.residual,
        }
    }
}

impl From<RsmError> for Outcome {
    fn from(error: RsmError) -> Self {
        // Larger than any vector: no entry was transferred.
        Self {
            error,
            residual: MOST,
        }
    }
}

/// An entry's field for local memory has room for a handle.
const _: () = assert!(size_of::<CHandle>() == size_of::<crate::boundary::Consumer>());

#[cfg(test)]
mod tests {
    use super::*;

    /// The residual never is that of an earlier call, also where a fault of this library ends it.
    ///
    /// Spec: RSMPV-52, RSMPV-58, RSMGEN-07
    #[test]
    fn a_panic_leaves_all_entries() {
        let mut io = ScatterGather {
            local_node: 0,
            request_count: 3,
            residual_count: 99,
            flags: 0,
            remote_handle: CHandle::NULL,
            vector: Out::none().list(),
        };
        let mut result = |transfer: fn() -> std::result::Result<(), (RsmError, u64)>| {
            io.residual_count = 99;
            let code = run(Out::of(&mut io), |_, _| transfer());
            (code, io.residual_count)
        };
        assert_eq!(result(|| Ok(())), (0, 0));
        let bad = RsmError::BadOffset;
        assert_eq!(result(|| Err((RsmError::BadOffset, 2))), (bad.code(), 2));
        assert_eq!(result(|| panic!("a fault of ours, for the test")), (100, 3));
    }
}
