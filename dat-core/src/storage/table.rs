//! Table of the objects of one kind.

use core::fmt;

#[cfg(feature = "std")]
use super::{FreeLink, free_list::FreeList};
use crate::id::Index;
use crate::id::{Handle, LAST_GENERATION};
use crate::sync::Slots;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The slots of the objects of one kind, lent to an adapter, and the number of objects.
///
/// A slice of slots converts with `into`; a free slot is then found by a scan. A table that grows
/// finds it in constant time.
pub struct Table<'s, T> {
    slots: Slots<'s, T>,
    /// Number of objects. Changed under the control lock.
    live: AtomicU32,
    #[cfg(feature = "std")]
    free: Option<FreeList<'s>>,
}

impl<'s, T> From<&'s mut [T]> for Table<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            slots: slots.into(),
            live: AtomicU32::new(0),
            #[cfg(feature = "std")]
            free: None,
        }
    }
}

#[cfg(feature = "std")]
impl<'s, T> Table<'s, T> {
    /// Creates a table that grows as far as both `slots` and `links` can.
    ///
    /// Free slots are used again in the order in which they became free.
    pub const fn growing(slots: Slots<'s, T>, links: Slots<'s, FreeLink>) -> Self {
        Self {
            slots,
            live: AtomicU32::new(0),
            free: Some(FreeList::new(links)),
        }
    }
}

impl<T> Table<'_, T> {
    /// Returns the slot at an index, if it is made.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)
    }

    /// Returns the slot at an index, mutably.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)
    }

    /// Returns all slots that are made.
    #[inline]
    pub(crate) fn made(&self) -> &[T] {
        self.slots.made()
    }

    /// Returns all slots that are made, mutably.
    pub(crate) fn made_mut(&mut self) -> &mut [T] {
        self.slots.made_mut()
    }

    /// Returns the maximum number of objects.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of objects.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Finds the slot for the next object, and its index. The slot stays free until `claim`.
    ///
    /// `uses` returns how often a free slot was used, and `None` for one that cannot be claimed. A
    /// scan takes the least used slot. A table that grows takes the one that is free longest, and
    /// grows first if at most `kept` slots are free. Needs the control lock.
    pub(crate) fn find(&self, kept: u32, uses: impl Fn(&T) -> Option<u32>) -> Option<(Index, &T)> {
        let index = self.find_index(kept, uses)?;
        Some((index, self.get(usize::from(index))?))
    }

    fn find_index(&self, kept: u32, uses: impl Fn(&T) -> Option<u32>) -> Option<Index> {
        #[cfg(feature = "std")]
        if let Some(free) = &self.free {
            return free.find(&self.slots, kept);
        }
        let _ = kept;
        let mut least = None;
        for (index, slot) in self.made().iter().enumerate() {
            let Some(used) = uses(slot) else { continue };
            if least.is_none_or(|(lowest, _)| used < lowest) {
                least = Some((used, index));
            }
            if used == 0 {
                break;
            }
        }
        Index::new(least?.1)
    }

    /// Counts an object in the slot that `find` returned. Needs the control lock.
    pub(crate) fn claim(&self, index: Index) {
        #[cfg(feature = "std")]
        if let Some(free) = &self.free {
            free.claim(index);
        }
        let _ = index;
        let live = self.live.load(Ordering::Relaxed);
        self.live.store(live.wrapping_add(1), Ordering::Relaxed);
    }

    /// Frees the slot of an object that is gone. Needs the control lock.
    ///
    /// After its last generation, a slot is not used again.
    pub(crate) fn give_back(&self, object: Handle) {
        #[cfg(feature = "std")]
        if let Some(free) = &self.free
            && object.generation() < LAST_GENERATION
        {
            free.give_back(object.slot());
        }
        let _ = object;
        let live = self.live.load(Ordering::Relaxed);
        self.live.store(live.wrapping_sub(1), Ordering::Relaxed);
    }
}

/// Returns 0 if an object can be created in a slot, for `Table::find`.
///
/// All free slots are alike.
pub(crate) fn vacant(is_free: bool, generation: u32) -> Option<u32> {
    (is_free && generation < LAST_GENERATION).then_some(0)
}

impl<T> fmt::Debug for Table<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("live", &self.live())
            .field("most", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::flags::HandleKind;

    fn growing(most: usize) -> Table<'static, u8> {
        let slots = Box::leak(vec![const { core::mem::MaybeUninit::uninit() }; most].into());
        let links = Vec::leak(
            (0..most)
                .map(|_| core::mem::MaybeUninit::uninit())
                .collect(),
        );
        Table::growing(
            Slots::growing(slots, || 0),
            Slots::growing(links, || FreeLink::EMPTY),
        )
    }

    fn found(table: &Table<'_, u8>, kept: u32) -> Option<u32> {
        let (index, _) = table.find(kept, |_| panic!("no scan"))?;
        Some(index.get())
    }

    fn take(table: &Table<'_, u8>, kept: u32) -> Option<u32> {
        let index = found(table, kept)?;
        table.claim(index.into());
        Some(index)
    }

    fn give_back(table: &Table<'_, u8>, index: u32, generation: u32) {
        table.give_back(Handle::new(1, HandleKind::Ep, generation, index.into()));
    }

    #[test]
    fn the_slot_that_is_free_longest_is_used_again() {
        let table = growing(4);
        for index in 0..4 {
            // A slot that is not claimed is found again.
            assert_eq!(
                (found(&table, 0), take(&table, 0)),
                (Some(index), Some(index))
            );
        }
        assert_eq!((take(&table, 0), table.live()), (None, 4));
        for index in [2, 0, 3] {
            give_back(&table, index, 1);
        }
        assert_eq!((table.live(), table.made().len()), (1, 4));
        assert_eq!([2, 0].map(Some), [take(&table, 0), take(&table, 0)]);
        give_back(&table, 2, 2);
        assert_eq!([3, 2].map(Some), [take(&table, 0), take(&table, 0)]);
        assert_eq!(take(&table, 0), None);
    }

    /// Slots that are kept free are used once the table cannot grow.
    #[test]
    fn some_slots_stay_free_while_the_table_can_grow() {
        let table = growing(6);
        for index in 0..4 {
            assert_eq!(take(&table, 2), Some(index));
            give_back(&table, index, 1);
            if index == 2 {
                break;
            }
        }
        // Three slots are free, one more than are kept.
        assert_eq!(
            [0, 3, 4, 5].map(Some),
            core::array::from_fn(|_| take(&table, 2))
        );
        assert_eq!([1, 2].map(Some), core::array::from_fn(|_| take(&table, 2)));
        assert_eq!(take(&table, 2), None);
    }

    #[test]
    fn a_slot_after_its_last_generation_stays_free() {
        let table = growing(1);
        assert_eq!(take(&table, 0), Some(0));
        give_back(&table, 0, LAST_GENERATION);
        assert_eq!((take(&table, 0), table.live()), (None, 0));
    }

    /// A scan takes the least used slot.
    #[test]
    fn a_lent_slice_is_scanned() {
        let mut slots = [3_u8, 9, 2, 2];
        let table = Table::from(&mut slots[..]);
        let uses = |used: &u8| (*used != 9).then_some(u32::from(*used));
        let find = |uses: &dyn Fn(&u8) -> Option<u32>| Some(table.find(0, uses)?.0.get());
        assert_eq!(find(&uses), Some(2));
        assert_eq!(find(&|used| uses(used).filter(|used| *used != 2)), Some(0));
        assert_eq!(find(&|_| None), None);
        table.claim(2.into());
        assert_eq!(table.live(), 1);
        give_back(&table, 2, 1);
        assert_eq!(table.live(), 0);
    }

    /// No slot is made whose index does not fit in a handle.
    #[test]
    fn no_slot_is_made_that_has_no_index() {
        let most = crate::id::LAST_INDEX as usize + 2;
        let table = growing(most);
        for index in 0..=crate::id::LAST_INDEX {
            assert_eq!(take(&table, 0), Some(index));
        }
        assert_eq!((take(&table, 0), table.made().len()), (None, most - 1));
    }
}
