//! A table in address space of its own, which takes memory as it is used.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::consumer::{advise, page_size};

/// A type whose values may be made of zero bytes.
///
/// # Safety
/// All bytes zero are a value. The size is a power of two, at most that of a page, and not 0.
pub(crate) unsafe trait Zeroed: Sync + 'static {}

/// A table whose elements never move, and of which more become accessible.
///
/// The address space is reserved when the first element is made, and stays. A process that locks
/// its memory (`mlockall`) gets pages for the accessible elements only. Takes no lock, so none is
/// held in a forked process.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    /// The first element; null before the reservation.
    start: AtomicPtr<T>,
    /// Number of accessible elements, which lie at the start.
    made: AtomicUsize,
    most: usize,
}

/// Number of bytes that become accessible at a time, unless pages are larger.
const STEP: usize = 1 << 16;

impl<T: Zeroed> Arena<T> {
    /// Makes a table of up to `most` elements.
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            start: AtomicPtr::new(ptr::null_mut()),
            made: AtomicUsize::new(0),
            most,
        }
    }

    /// Returns the element at an address; `None` if there is none.
    #[inline(always)]
    pub(crate) fn at(&self, address: usize) -> Option<&'static T> {
        const { assert!(size_of::<T>().is_power_of_two()) };
        let made = self.made.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(start.addr());
        // An offset between two elements becomes a large number.
        let index = offset.rotate_right(size_of::<T>().trailing_zeros());
        // SAFETY: `index` is that of an accessible element, and `offset` its offset. Elements stay,
        // and there are only shared references to them.
        (index < made).then(|| unsafe { &*start.byte_add(offset) })
    }

    /// Returns the element with an index, if it is made.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&'static T> {
        let made = self.made.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        // SAFETY: as in `at`.
        (index < made).then(|| unsafe { &*start.add(index) })
    }

    /// Returns the element with an index, and makes it first if it is new.
    ///
    /// `None` if the index is not below the maximum, or if the system refuses memory.
    pub(crate) fn make(&self, index: usize) -> Option<&'static T> {
        let made = self.made.load(Ordering::Acquire);
        if index < made {
            return self.get(index);
        }
        if index >= self.most {
            return None;
        }
        let start = self.reserve()?;
        let bytes = (index + 1 - made) * size_of::<T>();
        let bytes = bytes.next_multiple_of(STEP.max(page_size()));
        let end = (made + bytes / size_of::<T>()).min(self.most);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let first = start.wrapping_add(made).cast();
        // SAFETY: the range is part of the reservation: `end` is at most `most`, and the mapping is
        // of whole pages. It starts with a page, since each step but the last is of whole pages.
        // More access harms no reference.
        if unsafe { libc::mprotect(first, (end - made) * size_of::<T>(), access) } != 0 {
            return None;
        }
        // Another thread may make elements at the same time, from the same or a later one on.
        self.made.fetch_max(end, Ordering::AcqRel);
        self.get(index)
    }

    /// Returns the start of the address space, which is reserved first if it is not.
    fn reserve(&self) -> Option<*mut T> {
        let start = self.start.load(Ordering::Acquire);
        if !start.is_null() {
            return Some(start);
        }
        let length = self.most * size_of::<T>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the call reserves new address space, at an address that the system chooses.
        let new = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return None;
        }
        // Large pages would be provided, and cleared, for a few elements each. If this fails, only
        // speed and memory are lost.
        let _failed = advise(new.addr(), length, libc::MADV_NOHUGEPAGE);
        let (set, seen) = (Ordering::AcqRel, Ordering::Acquire);
        match self
            .start
            .compare_exchange(ptr::null_mut(), new.cast(), set, seen)
        {
            Ok(_) => Some(new.cast()),
            Err(other) => {
                // SAFETY: it was just mapped, and nobody knows it.
                unsafe { libc::munmap(new, length) };
                Some(other)
            }
        }
    }

    /// Returns the index of an element.
    pub(crate) fn index_of(&self, element: &T) -> usize {
        let start = self.start.load(Ordering::Relaxed);
        ptr::from_ref(element).addr().wrapping_sub(start.addr()) / size_of::<T>()
    }

    /// Returns the elements that are made.
    pub(crate) fn made(&self) -> impl Iterator<Item = &'static T> {
        (0..self.made.load(Ordering::Acquire)).map_while(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    // SAFETY: it is an integer of eight bytes.
    unsafe impl Zeroed for AtomicU64 {}

    #[test]
    fn elements_are_made_on_demand() {
        let arena = Arena::<AtomicU64>::new(10_000);
        assert!(arena.get(0).is_none() && arena.at(0).is_none());
        arena.make(0).expect("memory").store(7, Ordering::Relaxed);
        let first = arena.get(0).expect("is made");
        let address = ptr::from_ref(first).addr();
        assert!(arena.get(9_999).is_none() && arena.make(10_000).is_none());
        let last = arena.make(9_999).expect("memory");
        assert_eq!(last.load(Ordering::Relaxed), 0);
        assert_eq!(arena.index_of(last), 9_999);
        assert_eq!(first.load(Ordering::Relaxed), 7);
        for (address, expected) in [
            (address, Some(0)),
            (address + 8, Some(1)),
            (address + 4, None),
            (address + 79_992, Some(9_999)),
            (address + 80_000, None),
            (address - 8, None),
            (0, None),
            (usize::MAX, None),
        ] {
            let found = arena.at(address).map(|element| arena.index_of(element));
            assert_eq!(found, expected);
        }
        assert_eq!(arena.made().count(), 10_000);
    }
}
