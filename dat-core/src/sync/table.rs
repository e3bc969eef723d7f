//! Tables of slots that a caller lends, with all slots made or made on demand.
//!
//! Slots on demand save memory if the system assigns pages on first use.

use core::fmt;
use core::marker::PhantomData;
#[cfg(feature = "std")]
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;
use core::slice;

#[cfg(feature = "std")]
use super::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The slots of one kind of object, lent to an adapter.
///
/// A slice of slots converts with `into`.
pub struct Table<'s, T> {
    slots: NonNull<T>,
    /// Slots made at creation; accesses to them need no check of `late`.
    early: usize,
    #[cfg(feature = "std")]
    late: Late<T>,
    _lent: PhantomData<&'s mut [T]>,
}

/// State of the slots that are made on demand.
#[cfg(feature = "std")]
struct Late<T> {
    /// Number of slots at the start of the table that hold values, including early ones.
    made: AtomicUsize,
    /// Set while a thread makes slots.
    making: AtomicBool,
    /// Capacity of the table.
    length: usize,
    /// Makes an empty slot; `None` if the lender made all slots and keeps them.
    empty: Option<fn() -> T>,
}

#[expect(unsafe_code)]
// SAFETY: the table accesses its slots exclusively, like a mutable slice.
unsafe impl<T: Send + Sync> Send for Table<'_, T> {}
#[expect(unsafe_code)]
// SAFETY: threads that share the table share its slots, and may make slots that another drops.
unsafe impl<T: Send + Sync> Sync for Table<'_, T> {}

impl<'s, T> From<&'s mut [T]> for Table<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            early: slots.len(),
            #[cfg(feature = "std")]
            late: Late {
                made: AtomicUsize::new(slots.len()),
                making: AtomicBool::new(false),
                length: slots.len(),
                empty: None,
            },
            slots: NonNull::from(slots).cast(),
            _lent: PhantomData,
        }
    }
}

#[cfg(feature = "std")]
impl<'s, T> Table<'s, T> {
    /// Creates a table with up to `early` slots made now and the others on demand.
    ///
    /// `empty` makes each slot. Touches no other memory. Access to early slots takes the fewest
    /// instructions. The table drops its slots.
    pub fn unmade(slots: &'s mut [MaybeUninit<T>], early: usize, empty: fn() -> T) -> Self {
        let early = early.min(slots.len());
        for slot in slots.iter_mut().take(early) {
            slot.write(empty());
        }
        Self {
            early,
            late: Late {
                made: AtomicUsize::new(early),
                making: AtomicBool::new(false),
                length: slots.len(),
                empty: Some(empty),
            },
            slots: NonNull::from(slots).cast(),
            _lent: PhantomData,
        }
    }

    /// Returns the number of slots that hold values.
    ///
    /// They hold them as long as the table lives. The caller sees the writes of the threads that
    /// made them.
    #[inline]
    fn count(&self) -> usize {
        match self.late.empty {
            None => self.early,
            Some(_) => self.late.made.load(Ordering::Acquire),
        }
    }

    /// Returns true if the slot at an index beyond `early` is made.
    #[inline]
    fn is_late(&self, index: usize) -> bool {
        if cfg!(loom) && self.late.empty.is_none() {
            // Loom's atomics cannot be created by two threads at once; this one would give the same
            // answer.
            return false;
        }
        index < self.late.made.load(Ordering::Acquire)
    }

    /// Returns the capacity.
    pub(crate) fn len(&self) -> usize {
        self.late.length
    }

    /// Makes slots until there are `count`.
    ///
    /// Returns false if the capacity is too small, or another thread is making slots.
    pub(crate) fn make(&self, count: usize) -> bool {
        let late = &self.late;
        if count <= self.count() {
            return true;
        }
        let Some(empty) = late.empty.filter(|_| count <= late.length) else {
            return false;
        };
        if late.making.swap(true, Ordering::Acquire) {
            return false;
        }
        let made = late.made.load(Ordering::Relaxed);
        for index in made..count {
            #[expect(unsafe_code)]
            // SAFETY: the index is below `length`, and no thread reads the slot, which is not
            // counted yet. No other thread writes to it: only the thread that set `making` does,
            // and it sees the count of the threads that set it before.
            unsafe {
                self.slots.add(index).write(empty());
            }
        }
        late.made.store(made.max(count), Ordering::Release);
        late.making.swap(false, Ordering::Release);
        true
    }
}

#[cfg(not(feature = "std"))]
impl<T> Table<'_, T> {
    #[inline]
    fn count(&self) -> usize {
        self.early
    }

    #[inline]
    fn is_late(&self, _index: usize) -> bool {
        false
    }

    /// Returns the number of slots.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.early
    }

    /// Returns true if there are `count` slots.
    #[inline]
    pub(crate) fn make(&self, count: usize) -> bool {
        count <= self.early
    }
}

impl<T> Table<'_, T> {
    /// Returns the slot at an index, if it is made.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.early && !self.is_late(index) {
            return None;
        }
        #[expect(unsafe_code)]
        // SAFETY: the slot at this index holds a value, and is only shared while the table is.
        Some(unsafe { self.slots.add(index).as_ref() })
    }

    /// Returns the slot at an index, mutably.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.made_mut().get_mut(index)
    }

    /// Returns all slots that are made.
    #[inline]
    pub(crate) fn made(&self) -> &[T] {
        #[expect(unsafe_code)]
        // SAFETY: as in `get`.
        unsafe {
            slice::from_raw_parts(self.slots.as_ptr(), self.count())
        }
    }

    /// Returns all slots that are made, mutably.
    pub(crate) fn made_mut(&mut self) -> &mut [T] {
        #[expect(unsafe_code)]
        // SAFETY: that many slots hold values, and the table is the only access to them.
        unsafe {
            slice::from_raw_parts_mut(self.slots.as_ptr(), self.count())
        }
    }
}

#[cfg(feature = "std")]
impl<T> Drop for Table<'_, T> {
    fn drop(&mut self) {
        if mem::needs_drop::<T>() && self.late.empty.is_some() {
            #[expect(unsafe_code)]
            // SAFETY: the table made these slots, and nothing accesses them afterwards.
            unsafe {
                core::ptr::drop_in_place(self.made_mut());
            }
        }
    }
}

impl<T> fmt::Debug for Table<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn slots_are_made_when_they_are_needed() {
        let mut slots = [const { MaybeUninit::uninit() }; 4];
        let mut table = Table::unmade(&mut slots, 1, || 7_u32);
        assert_eq!((table.len(), table.made()), (4, &[7][..]));
        assert_eq!((table.get(0), table.get(1)), (Some(&7), None));
        assert!(table.make(0) && table.make(1));
        assert_eq!(table.made().len(), 1);
        assert!(table.make(3));
        *table.get_mut(2).unwrap() = 8;
        assert!(table.make(2) && !table.make(5));
        assert_eq!(table.made(), [7, 7, 8]);
        assert!(table.make(4));
        assert_eq!(table.get(3), Some(&7));
        for nonsense in [4, usize::MAX] {
            assert!(table.get(nonsense).is_none() && table.get_mut(nonsense).is_none());
        }
    }

    #[test]
    fn slots_of_a_lender_are_all_there_and_stay_as_they_were_left() {
        let mut lent = [1, 2];
        let mut table = Table::from(&mut lent[..]);
        assert_eq!((table.len(), table.made()), (2, &[1, 2][..]));
        assert!(table.make(2) && !table.make(3));
        assert!(table.get(2).is_none() && table.get(usize::MAX).is_none());
        *table.get_mut(1).unwrap() = 3;
        drop(table);
        assert_eq!(lent, [1, 3]);
        assert!(Table::<u32>::from(&mut [][..]).made().is_empty());
    }

    /// A table drops the slots that it made, and touches no other memory.
    #[test]
    fn slots_go_with_their_table() {
        std::thread_local! {
            static SHARED: Arc<()> = Arc::new(());
        }
        let shares = || SHARED.with(Arc::strong_count);
        let mut slots: Vec<MaybeUninit<Arc<()>>> = Vec::new();
        slots.resize_with(3, MaybeUninit::uninit);
        let table = Table::unmade(&mut slots, 1, || SHARED.with(Arc::clone));
        assert!(table.make(2));
        assert_eq!(shares(), 3);
        drop(table);
        assert_eq!(shares(), 1);
        let mut lent = [SHARED.with(Arc::clone)];
        drop(Table::from(&mut lent[..]));
        assert_eq!(shares(), 2);
    }
}
