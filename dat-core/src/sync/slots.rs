//! Contiguous slots that a caller lends: all there, or made on demand at the end.

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
pub struct Slots<'s, T> {
    slots: NonNull<T>,
    length: usize,
    #[cfg(feature = "std")]
    growth: Growth<T>,
    _lent: PhantomData<&'s mut [T]>,
}

/// State of slots that are made on demand.
#[cfg(feature = "std")]
struct Growth<T> {
    /// Number of slots at the start that hold values.
    made: AtomicUsize,
    /// Set while a thread makes slots.
    making: AtomicBool,
    /// Number of slots at the start whose memory is accessible. Changed while `making` is set.
    accessible: AtomicUsize,
    /// Functions that make slots; `None` if the lender made all slots and keeps them.
    maker: Option<Maker<T>>,
}

#[cfg(feature = "std")]
struct Maker<T> {
    /// Makes an empty slot.
    empty: fn() -> T,
    access: Access,
}

/// Makes `bytes` bytes from `start` on accessible; returns false if the system refuses.
#[cfg(feature = "std")]
pub type Access = fn(start: *mut u8, bytes: usize) -> bool;

/// Number of bytes that the first growth makes accessible. Each later growth doubles them.
#[cfg(feature = "std")]
const FIRST_STEP: usize = 1 << 16;
/// Maximum number of bytes that one growth makes accessible in advance.
#[cfg(feature = "std")]
const LARGEST_STEP: usize = 1 << 21;

#[expect(unsafe_code)]
// SAFETY: these slots are accessed exclusively, like a mutable slice.
unsafe impl<T: Send + Sync> Send for Slots<'_, T> {}
#[expect(unsafe_code)]
// SAFETY: threads that share the slots may make slots that another drops.
unsafe impl<T: Send + Sync> Sync for Slots<'_, T> {}

impl<'s, T> From<&'s mut [T]> for Slots<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            length: slots.len(),
            #[cfg(feature = "std")]
            growth: Growth {
                made: AtomicUsize::new(slots.len()),
                making: AtomicBool::new(false),
                accessible: AtomicUsize::new(slots.len()),
                maker: None,
            },
            slots: NonNull::from(slots).cast(),
            _lent: PhantomData,
        }
    }
}

#[cfg(feature = "std")]
impl<'s, T> Slots<'s, T> {
    /// Creates slots that are made on demand in accessible memory.
    ///
    /// `empty` makes each slot, which is dropped with the result.
    pub fn growing(memory: &'s mut [MaybeUninit<T>], empty: fn() -> T) -> Self {
        let accessible = memory.len();
        let maker = Maker {
            empty,
            access: |_, _| true,
        };
        Self::made_by(NonNull::from(memory).cast(), accessible, accessible, maker)
    }

    /// Creates slots that are made on demand in memory that becomes accessible in steps.
    ///
    /// `empty` makes each slot, which is dropped with the result. Before the first slot of some
    /// memory is made, `access` has returned true for that memory.
    ///
    /// # Safety
    /// - For `'s`, the address space of `length` slots at `slots` belongs to the result only. It is
    ///   aligned and smaller than `isize::MAX` bytes.
    /// - Memory for which `access` returned true can be read and written for `'s`.
    #[expect(unsafe_code)]
    // UNSAFETY: the caller's promise about memory cannot be checked here.
    pub unsafe fn reserved(
        slots: NonNull<T>,
        length: usize,
        empty: fn() -> T,
        access: Access,
    ) -> Self {
        Self::made_by(slots, length, 0, Maker { empty, access })
    }

    fn made_by(slots: NonNull<T>, length: usize, accessible: usize, maker: Maker<T>) -> Self {
        Self {
            slots,
            length,
            growth: Growth {
                made: AtomicUsize::new(0),
                making: AtomicBool::new(false),
                accessible: AtomicUsize::new(accessible),
                maker: Some(maker),
            },
            _lent: PhantomData,
        }
    }

    /// Returns the number of slots that hold values.
    ///
    /// They hold them as long as `self` lives. The caller sees the writes of the threads that made
    /// them.
    #[inline]
    fn count(&self) -> usize {
        if cfg!(loom) && self.growth.maker.is_none() {
            // Loom's atomics cannot be created by two threads at once; this one would give the same
            // answer.
            return self.length;
        }
        self.growth.made.load(Ordering::Acquire)
    }

    /// Makes slots until there are `count`.
    ///
    /// Returns false if that exceeds the capacity, if the system refuses memory, or if another
    /// thread is making slots.
    pub(crate) fn make(&self, count: usize) -> bool {
        if count <= self.count() {
            return true;
        }
        let growth = &self.growth;
        let Some(maker) = growth.maker.as_ref().filter(|_| count <= self.length) else {
            return false;
        };
        if growth.making.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_accessible = self.make_accessible(count, maker.access);
        if is_accessible {
            let made = growth.made.load(Ordering::Relaxed);
            for index in made..count {
                #[expect(unsafe_code)]
                // SAFETY: the index is below `accessible`, and no thread reads the slot, which is
                // not counted yet. No other thread writes to it: only the thread that set `making`
                // does, and it sees the count of the threads that set it before.
                unsafe {
                    self.slots.add(index).write((maker.empty)());
                }
            }
            growth.made.store(made.max(count), Ordering::Release);
        }
        growth.making.swap(false, Ordering::Release);
        is_accessible
    }

    /// Makes the memory of the first `count` slots accessible, and some in advance.
    ///
    /// Only for the thread that set `making`.
    fn make_accessible(&self, count: usize, access: Access) -> bool {
        let accessible = self.growth.accessible.load(Ordering::Relaxed);
        if count <= accessible {
            return true;
        }
        let size = mem::size_of::<T>().max(1);
        let step = accessible
            .saturating_mul(size)
            .clamp(FIRST_STEP, LARGEST_STEP)
            .checked_div(size)
            .unwrap_or_default();
        let end = accessible.saturating_add(step).min(self.length).max(count);
        let bytes = end.saturating_sub(accessible).saturating_mul(size);
        let start = self.slots.as_ptr().wrapping_add(accessible);
        if !access(start.cast(), bytes) {
            return false;
        }
        self.growth.accessible.store(end, Ordering::Relaxed);
        true
    }
}

#[cfg(not(feature = "std"))]
impl<T> Slots<'_, T> {
    #[inline]
    fn count(&self) -> usize {
        self.length
    }

    /// Returns true if there are `count` slots.
    #[inline]
    pub(crate) fn make(&self, count: usize) -> bool {
        count <= self.length
    }
}

impl<T> Slots<'_, T> {
    /// Returns the capacity.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the slot at an index, if it is made.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.count() {
            return None;
        }
        #[expect(unsafe_code)]
        // SAFETY: the slot at this index holds a value, and is only shared while `self` is.
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
        // SAFETY: that many slots hold values, and `self` is the only access to them.
        unsafe {
            slice::from_raw_parts_mut(self.slots.as_ptr(), self.count())
        }
    }
}

#[cfg(feature = "std")]
impl<T> Drop for Slots<'_, T> {
    fn drop(&mut self) {
        if mem::needs_drop::<T>() && self.growth.maker.is_some() {
            #[expect(unsafe_code)]
            // SAFETY: `make` made these slots, and nothing accesses them afterwards.
            unsafe {
                core::ptr::drop_in_place(self.made_mut());
            }
        }
    }
}

impl<T> fmt::Debug for Slots<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
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
        let mut table = Slots::growing(&mut slots, || 7_u32);
        assert_eq!((table.len(), table.made()), (4, &[][..]));
        assert!(table.get(0).is_none() && table.make(1));
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
        let mut table = Slots::from(&mut lent[..]);
        assert_eq!((table.len(), table.made()), (2, &[1, 2][..]));
        assert!(table.make(2) && !table.make(3));
        assert!(table.get(2).is_none() && table.get(usize::MAX).is_none());
        *table.get_mut(1).unwrap() = 3;
        drop(table);
        assert_eq!(lent, [1, 3]);
        assert!(Slots::<u32>::from(&mut [][..]).made().is_empty());
    }

    /// Threads that look for slots find whole ones while another thread makes them.
    ///
    /// Miri and the thread sanitizer find a race if `count` is loaded with a weaker order.
    #[test]
    fn slots_are_found_while_they_are_made() {
        const SLOTS: usize = 40;
        let mut slots = [const { MaybeUninit::uninit() }; SLOTS];
        let table = Slots::growing(&mut slots, || Vec::from([7_u32; 3]));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut found = 0;
                    while found < SLOTS {
                        let made = table.made();
                        assert!(made.len() >= found && made.iter().all(|slot| slot == &[7; 3]));
                        found = made.len();
                        if let Some(slot) = table.get(found) {
                            assert_eq!(slot[..], [7; 3]);
                        }
                        std::thread::yield_now();
                    }
                });
            }
            for count in 1..=SLOTS {
                assert!(table.make(count));
                std::thread::yield_now();
            }
        });
        assert_eq!(table.made().len(), SLOTS);
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
        let table = Slots::growing(&mut slots, || SHARED.with(Arc::clone));
        assert!(table.make(2));
        assert_eq!(shares(), 3);
        drop(table);
        assert_eq!(shares(), 1);
        let mut lent = [SHARED.with(Arc::clone)];
        drop(Slots::from(&mut lent[..]));
        assert_eq!(shares(), 2);
    }
}
