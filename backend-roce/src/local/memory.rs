//! Memory that two processes share: a file without a name, of fixed length and filled (ROCE-211).
//!
//! # Why this is sound
//! - A [`Memory`] is one mapping of [`LENGTH`] bytes, which stays until it is dropped. The file is
//!   sealed: nobody can make it shorter under the mapping.
//! - The peer may change each byte at any time. So the mapping is only reached as atomic words and
//!   atomic bytes; there is no reference to plain bytes in it. The words and the bytes do not
//!   overlap.
//! - A child of `fork` does not have the mapping. No [`Lane`] is made there, and nothing unmapped.

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub(super) use dat_core::sync::RegisteredSpan;
use dat_core::sync::{load_bytes, store_bytes};
#[cfg(test)]
use dat_core::{
    backend::{DomainKey, Registration},
    flags::MemoryPrivileges,
    memory::Region,
    sync::RegisteredMemory,
};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use super::queue::QUEUE_BYTES;
use crate::forks;

/// Bytes before the queues, for their words: a page.
const WORDS: usize = 4096;

/// Bytes of the mapping: the words of two queues, then the queues.
pub(super) const LENGTH: usize = WORDS + 2 * QUEUE_BYTES;

const _: () = assert!(2 * size_of::<Words>() <= WORDS);

/// Seals of the file.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Type of the file system that such a file is in; files of huge pages are in another one.
const TMPFS: i128 = 0x0102_1994;

/// Bytes of a block in which the system counts the pages of a file.
const BLOCK: i128 = 512;

/// A word of a queue, alone on its cache lines: processors load two at a time.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Word(AtomicU32);

impl Word {
    /// Returns the value.
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// Sets the value.
    pub fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    /// Sets the value, and returns the one before.
    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
}

/// The words of a queue.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Words {
    /// Position of the next record that is written.
    pub tail: Word,
    /// Position of the next record that is read.
    pub head: Word,
    /// Set while the reader wants a doorbell for a record.
    pub sleeps: Word,
    /// Set while the writer wants a doorbell for room.
    pub waits: Word,
}

/// A queue in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'m> {
    words: &'m Words,
    bytes: &'m [AtomicU8],
}

impl<'m> Lane<'m> {
    /// Returns the queue in some memory; `None` unless its length is a power of two.
    pub fn new(words: &'m Words, bytes: &'m [AtomicU8]) -> Option<Self> {
        let fits = bytes.len().is_power_of_two() && bytes.len() <= 1 << 30;
        fits.then_some(Self { words, bytes })
    }

    pub(super) fn words(self) -> &'m Words {
        self.words
    }

    pub(super) fn length(self) -> u32 {
        self.bytes.len() as u32
    }

    /// Returns the bytes from a position to the end, and those before it.
    fn from(self, position: u32) -> (&'m [AtomicU8], &'m [AtomicU8]) {
        let offset = position as usize & self.bytes.len().wrapping_sub(1);
        let (before, behind) = self.bytes.split_at_checked(offset).unwrap_or_default();
        (behind, before)
    }

    /// Copies bytes into the queue, from a position on.
    pub(super) fn store(self, position: u32, bytes: &[u8]) {
        let (behind, before) = self.from(position);
        let stored = store_bytes(behind, bytes);
        if let Some(rest) = bytes.get(stored..).filter(|rest| !rest.is_empty()) {
            store_bytes(before, rest);
        }
    }

    /// Copies bytes out of the queue, from a position on.
    pub(super) fn load(self, position: u32, bytes: &mut [u8]) {
        let (behind, before) = self.from(position);
        let loaded = load_bytes(behind, bytes);
        if let Some(rest) = bytes.get_mut(loaded..).filter(|rest| !rest.is_empty()) {
            load_bytes(before, rest);
        }
    }

    /// As [`store`](Self::store), from registered memory.
    pub(super) fn store_span(self, position: u32, span: RegisteredSpan<'_>) {
        let (behind, before) = self.from(position);
        let stored = span.store_to(behind);
        if let Some(rest) = span.part(stored, span.length() - stored) {
            rest.store_to(before);
        }
    }

    /// As [`load`](Self::load), into registered memory.
    pub(super) fn load_span(self, position: u32, span: RegisteredSpan<'_>) {
        let (behind, before) = self.from(position);
        let loaded = span.load_from(behind);
        if let Some(rest) = span.part(loaded, span.length() - loaded) {
            rest.load_from(before);
        }
    }
}

/// Orders all accesses before it and all accesses after it, for all threads.
pub(super) fn fence() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// The reason why there is no shared memory.
#[derive(Debug)]
pub enum MemoryFault {
    /// A call of the system failed.
    System(&'static str, io::Error),
    /// The process may not make files of this length (`RLIMIT_FSIZE`).
    Limit,
    /// The file of the peer is not what it has to be.
    Strange(&'static str),
}

/// Names a call of the system that failed.
fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> MemoryFault {
    move |error| MemoryFault::System(call, error.into())
}

/// Two queues in memory that two processes share.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    /// Process that has the mapping.
    generation: usize,
}

// SAFETY: the mapping belongs to the process, and threads reach it by atomics only.
#[expect(unsafe_code, reason = "adapters are shared between threads")]
unsafe impl Send for Memory {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "adapters are shared between threads")]
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes the memory; returns it with the file for the peer.
    ///
    /// # Errors
    /// The system has no memory or descriptor left, or refuses a call.
    pub fn create() -> Result<(Self, OwnedFd), MemoryFault> {
        // The system ends a process that makes a file beyond this limit.
        let most = getrlimit(Resource::Fsize).current;
        if most.is_some_and(|most| most < LENGTH as u64) {
            return Err(MemoryFault::Limit);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // A system may insist on the flag, and one before Linux 6.3 does not know it.
        let file = memfd_create("dat-roce", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("dat-roce", flags))
            .map_err(failed("memfd_create"))?;
        fallocate(&file, FallocateFlags::empty(), 0, LENGTH as u64).map_err(failed("fallocate"))?;
        fcntl_add_seals(&file, SEALS).map_err(failed("F_ADD_SEALS"))?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps the memory that a peer has made, once its file is found to be right.
    ///
    /// A peer can still punch holes into it, which the system fills again. Where the system has no
    /// page left for that, it ends this process, which the peer could do directly: they have the
    /// same user.
    ///
    /// # Errors
    /// The file is another one, or the system refuses a call.
    pub fn adopt(file: impl AsFd) -> Result<Self, MemoryFault> {
        // First: it fails for files that the other calls could wait for.
        let seals = fcntl_get_seals(&file).map_err(failed("F_GET_SEALS"))?;
        if !seals.contains(SEALS) {
            return Err(MemoryFault::Strange("not sealed"));
        }
        let system = fstatfs(&file).map_err(failed("fstatfs"))?;
        // The types of these numbers differ between targets.
        if i128::from(system.f_type) != TMPFS {
            return Err(MemoryFault::Strange("in huge pages"));
        }
        let state = fstat(&file).map_err(failed("fstat"))?;
        if i128::from(state.st_size) != LENGTH as i128 {
            return Err(MemoryFault::Strange("of another length"));
        }
        if i128::from(state.st_blocks) * BLOCK < LENGTH as i128 {
            return Err(MemoryFault::Strange("not filled"));
        }
        Self::map(&file)
    }

    #[expect(unsafe_code, reason = "memory that two processes share")]
    fn map(file: impl AsFd) -> Result<Self, MemoryFault> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the system chooses an address where nothing is mapped.
        let base = unsafe { mmap(ptr::null_mut(), LENGTH, both, flags, file.as_fd(), 0) };
        let base = NonNull::new(base.map_err(failed("mmap"))?.cast::<u8>());
        let memory = Self {
            base: base.ok_or(MemoryFault::Strange("mapped at 0"))?,
            generation: forks::generation(),
        };
        // SAFETY: the range is the mapping, whose contents the call does not change.
        unsafe { madvise(memory.start(), LENGTH, Advice::LinuxDontFork) }
            .map_err(failed("madvise"))?;
        Ok(memory)
    }

    fn start(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// Returns true in a child of `fork`, which does not have the mapping.
    fn is_forked(&self) -> bool {
        self.generation != forks::generation()
    }

    /// Returns the first queue or the second one; `None` in a child of `fork` (ROCE-222).
    #[expect(unsafe_code, reason = "memory that two processes share")]
    pub fn lane(&self, is_second: bool) -> Option<Lane<'_>> {
        if self.is_forked() {
            return None;
        }
        let index = usize::from(is_second);
        // SAFETY: the mapping begins with two `Words`, as was asserted, at a multiple of a page. It
        // lives as long as `self`, and any bytes are a value of these atomics.
        let words = unsafe { self.base.cast::<Words>().add(index).as_ref() };
        // SAFETY: the mapping has `LENGTH` bytes, so that the queue lies within, behind the words
        // and apart from the other queue.
        let bytes = unsafe {
            let start = self
                .base
                .add(WORDS + index * QUEUE_BYTES)
                .cast::<AtomicU8>();
            slice::from_raw_parts(start.as_ptr(), QUEUE_BYTES)
        };
        Some(Lane { words, bytes })
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "memory that two processes share")]
    fn drop(&mut self) {
        if !self.is_forked() {
            // SAFETY: the range is the mapping, and lanes borrow `self`.
            let _ = unsafe { munmap(self.start(), LENGTH) };
        }
    }
}

/// Returns registered memory of a test, of `length` bytes that count up from `first`.
#[cfg(test)]
#[expect(unsafe_code, reason = "registered memory without a backend")]
pub(super) fn registered(length: usize, first: u8) -> RegisteredMemory {
    let bytes = (0..length).map(|at| AtomicU8::new(first.wrapping_add(at as u8)));
    let region = Region::from_static(bytes.collect::<alloc::vec::Vec<_>>().leak());
    let registration = Registration::new(DomainKey(0), &region, MemoryPrivileges::ALL);
    // SAFETY: the bytes stay for ever.
    unsafe { RegisteredMemory::new(&registration) }
}
