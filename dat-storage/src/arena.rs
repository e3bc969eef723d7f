//! A table in address space of its own, for a static.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::memory::Memory;
use crate::words::{Zeroed, extend};

/// A table whose elements never move, and of which more become accessible.
///
/// The address space is reserved when the first element is made, and stays. A process that locks
/// its memory (`mlockall`) gets pages for the accessible elements only. Takes no lock, so none is
/// held in a forked process.
#[derive(Debug)]
pub struct Arena<T> {
    /// The first element; null before the reservation.
    start: AtomicPtr<T>,
    /// Number of accessible elements, which lie at the start.
    made: AtomicUsize,
    most: usize,
}

impl<T: Zeroed + 'static> Arena<T> {
    /// Makes a table of up to `most` elements.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            start: AtomicPtr::new(ptr::null_mut()),
            made: AtomicUsize::new(0),
            most,
        }
    }

    /// Returns the element at an address; `None` if there is none.
    ///
    /// The size of an element must be a power of two, which is checked when this is compiled.
    #[inline(always)]
    pub fn at(&self, address: usize) -> Option<&'static T> {
        const { assert!(size_of::<T>().is_power_of_two()) };
        let made = self.made.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(start.addr());
        // An offset between two elements becomes a large number.
        let index = offset.rotate_right(size_of::<T>().trailing_zeros());
        #[expect(unsafe_code)]
        // SAFETY: `index` is that of an accessible element, and `offset` its offset. Elements stay,
        // and there are only shared references to them.
        (index < made).then(|| unsafe { &*start.byte_add(offset) })
    }

    /// Returns the element with an index, if it is made.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&'static T> {
        let made = self.made.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        #[expect(unsafe_code)]
        // SAFETY: as in `at`.
        (index < made).then(|| unsafe { &*start.add(index) })
    }

    /// Returns the element with an index, and makes it first if it is new.
    ///
    /// `None` if the index is not below the maximum, or if the system refuses memory.
    pub fn make(&self, index: usize) -> Option<&'static T> {
        if index >= self.most {
            return None;
        }
        if index >= self.made.load(Ordering::Acquire) {
            extend(self.reserve()?, &self.made, index, self.most)?;
        }
        self.get(index)
    }

    /// Returns the start of the address space, which is reserved first if it is not.
    fn reserve(&self) -> Option<*mut T> {
        let start = self.start.load(Ordering::Acquire);
        if !start.is_null() {
            return Some(start);
        }
        let memory = Memory::reserve(self.most.checked_mul(size_of::<T>())?)?;
        let new = memory.start().as_ptr().cast();
        let (set, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let stored = self.start.compare_exchange(ptr::null_mut(), new, set, seen);
        match stored {
            Ok(_) => {
                // It stays for ever.
                mem::forget(memory);
                Some(new)
            }
            Err(other) => Some(other),
        }
    }

    /// Returns the index of an element.
    pub fn index_of(&self, element: &T) -> usize {
        let start = self.start.load(Ordering::Relaxed);
        ptr::from_ref(element).addr().wrapping_sub(start.addr()) / size_of::<T>().max(1)
    }

    /// Returns the elements that are made.
    pub fn made(&self) -> impl Iterator<Item = &'static T> {
        (0..self.made.load(Ordering::Acquire)).map_while(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[expect(unsafe_code)]
    // SAFETY: it is an integer.
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
