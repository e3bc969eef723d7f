//! The allocator of libraries for C: the system's, with a reserve for when the system refuses.
//!
//! A collection of the standard library and the thread of the mock cannot report that there is no
//! memory: they end the process, which is the consumer's. The reserve carries them to the end of
//! the call. Calls that make an object ask [`has_memory`] first. They are refused while the reserve
//! is in use and the system still refuses, so that the reserve is not used up.
//!
//! # Size
//!
//! The memory that one call takes is bounded. The number of threads that are inside calls when the
//! system begins to refuse is not. `dat_ia_open` takes most small blocks: three of 4 KiB and seven
//! of 512 bytes, so that 36 threads may open adapters at a time. Large blocks are for dispatchers
//! of the mock, with 40 bytes for each of 4,096 events at most. Its growing queues have an old and
//! a new block for a moment. There are two pairs of 256 KiB, for the thread of the mock and one
//! thread that posts. The reserve is zeros in the library's data: a page takes memory when it is
//! first used, or when the program locks all of its memory (`mlockall`).

#![expect(unsafe_code, reason = "the allocator of a library")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The allocator of a C library, which sets it as its global allocator.
///
/// Takes no lock, so no lock is held in a forked process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Blocks of one size, aligned to that size up to a page.
///
/// Sizes are powers of two.
struct Class {
    size: usize,
    /// Offset of its first block in the reserve.
    first: usize,
    /// Words of `FREE` with the bits of its blocks.
    words: Range<usize>,
}

/// The classes in ascending order of size, without a gap.
static CLASSES: [Class; 5] = [
    Class {
        size: 64,
        first: 0,
        words: 0..16,
    },
    Class {
        size: 512,
        first: 64 << 10,
        words: 16..20,
    },
    Class {
        size: 4 << 10,
        first: 192 << 10,
        words: 20..22,
    },
    Class {
        size: 32 << 10,
        first: 704 << 10,
        words: 22..23,
    },
    Class {
        size: 256 << 10,
        first: 1216 << 10,
        words: 23..24,
    },
];

/// Bytes of the reserve.
const RESERVE: usize = 2240 << 10;
const PAGE: usize = 4096;

#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; RESERVE]>);

// SAFETY: only the owner of a block touches its bytes, and `FREE` gives a block to one owner.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; RESERVE]));

/// One bit for each block, set if the block is free.
static FREE: [AtomicU64; 24] = {
    let mut free = [const { AtomicU64::new(u64::MAX) }; 24];
    free[22] = AtomicU64::new(0xFFFF);
    free[23] = AtomicU64::new(0xF);
    free
};

/// Number of blocks in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Free memory of the system that a call needs while the reserve is in use.
const PROBE: Layout = Layout::new::<[u64; 4096]>();

/// Returns true if a call that makes an object may begin.
///
/// The reserve is whole, or the system has memory again.
#[must_use]
pub fn has_memory() -> bool {
    USED.load(Ordering::Relaxed) == 0 || system_has_memory()
}

/// Returns true if the system's heap has memory; ignores the reserve.
#[cold]
#[must_use]
pub fn system_has_memory() -> bool {
    // SAFETY: the size of the layout is not 0; the memory is freed with the same layout.
    unsafe {
        // The compiler would remove an allocation that it sees freed unused.
        let probe = std::hint::black_box(System.alloc(PROBE));
        if !probe.is_null() {
            System.dealloc(probe, PROBE);
        }
        !probe.is_null()
    }
}

impl Class {
    /// Takes a block; returns its offset in the reserve.
    fn take(&self) -> Option<usize> {
        let words = FREE.get(self.words.clone())?;
        for (index, word) in words.iter().enumerate() {
            let mut free = word.load(Ordering::Relaxed);
            while free != 0 {
                let bit = free & free.wrapping_neg();
                let before = word.fetch_and(!bit, Ordering::Acquire);
                if before & bit != 0 {
                    USED.fetch_add(1, Ordering::Relaxed);
                    let block = index * 64 + bit.trailing_zeros() as usize;
                    return Some(self.first + block * self.size);
                }
                free = before;
            }
        }
        None
    }

    /// Frees a block.
    fn give_back(&self, offset: usize) {
        let block = (offset - self.first) / self.size;
        let words = FREE.get(self.words.clone());
        if let Some(word) = words.and_then(|words| words.get(block / 64)) {
            word.fetch_or(1 << (block % 64), Ordering::Release);
            USED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Takes a block of the reserve; null if none fits.
#[cold]
fn reserved(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE {
        return ptr::null_mut();
    }
    let size = layout.size().max(layout.align());
    let classes = CLASSES.iter().filter(|class| class.size >= size);
    let block = classes.filter_map(Class::take).next();
    // The offset of a block lies in the arena.
    block.map_or(ptr::null_mut(), |offset| {
        ARENA.0.get().cast::<u8>().wrapping_add(offset)
    })
}

/// Returns the offset of memory in the reserve; `None` if it lies elsewhere.
#[inline]
fn offset(memory: *mut u8) -> Option<usize> {
    let offset = memory.addr().wrapping_sub(ARENA.0.get().addr());
    (offset < RESERVE).then_some(offset)
}

/// Returns the class of the block at an offset in the reserve.
fn class_of(offset: usize) -> Option<&'static Class> {
    CLASSES.iter().rfind(|class| class.first <= offset)
}

// SAFETY: memory is the system's, or a block of the reserve. A block is as large and as aligned as
// requested and has one owner until it is freed. Both go back to their origin. No function here
// unwinds, or allocates for itself.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return reserved(layout);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = reserved(layout);
        if !memory.is_null() {
            // SAFETY: the block is at least as large as the layout.
            unsafe { ptr::write_bytes(memory, 0, layout.size()) };
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match offset(memory) {
            Some(offset) => {
                if let Some(class) = class_of(offset) {
                    class.give_back(offset);
                }
            }
            // SAFETY: it is not in the reserve, so it is the system's; the rest is as the caller
            // promises.
            None => unsafe { System.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(offset) = offset(memory) {
            if class_of(offset).is_some_and(|class| size <= class.size) {
                return memory;
            }
        } else {
            // SAFETY: it is the system's; the rest is as the caller promises.
            let grown = unsafe { System.realloc(memory, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller promises a size that is valid with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises a size that is not 0.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both blocks are at least as long as the copy and do not overlap; the caller
            // gives up the old one.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_the_reserve_grows_without_moving() {
        let layout = Layout::new::<[u64; 9]>();
        let memory = reserved(layout);
        assert!(!memory.is_null());
        // SAFETY: the memory is a block of this layout, and is freed with the layout of its last
        // size.
        unsafe {
            assert_eq!(Heap.realloc(memory, layout, 512), memory);
            let layout = Layout::from_size_align(512, layout.align()).expect("a layout");
            let moved = Heap.realloc(memory, layout, 513);
            assert!(!moved.is_null() && moved != memory);
            let layout = Layout::from_size_align(513, layout.align()).expect("a layout");
            Heap.dealloc(moved, layout);
        }
    }

    #[test]
    fn size_classes_are_contiguous() {
        let mut behind = 0;
        for class in &CLASSES {
            assert_eq!(class.first, behind);
            assert_eq!(class.first % class.size.min(PAGE), 0);
            let words = FREE.get(class.words.clone()).expect("its words");
            let blocks = words.iter().map(|word| word.load(Ordering::Relaxed));
            behind += blocks.map(|word| word.count_ones() as usize).sum::<usize>() * class.size;
        }
        assert_eq!(behind, RESERVE);
    }
}
