//! Slots that queues take in runs: records of requests, slots of events.
//!
//! Models for loom lend slices, and have small stacks without room for the lists of free runs.

use core::fmt;

#[cfg(all(feature = "std", not(loom)))]
use super::free_runs::{FreeRun, FreeRuns};
use crate::sync::Slots;

/// A slot that queues take in runs.
pub(crate) trait RunSlot {
    /// Returns true if no queue uses the slot.
    fn is_unowned(&self) -> bool;

    /// Returns what was stored in the free slot.
    #[cfg(all(feature = "std", not(loom)))]
    fn free_run(&self) -> FreeRun;

    /// Stores the words of a free run in the free slot, which keeps them until a queue uses it.
    #[cfg(all(feature = "std", not(loom)))]
    fn set_free_run(&self, run: FreeRun);
}

/// The slots of one kind that queues take in runs, lent to an adapter.
///
/// A slice of slots converts with `into`; a free run is then found by a scan. Runs that grow find
/// it in constant time.
pub struct Runs<'s, T> {
    slots: Slots<'s, T>,
    #[cfg(all(feature = "std", not(loom)))]
    free: Option<FreeRuns>,
}

impl<'s, T> From<&'s mut [T]> for Runs<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            slots: slots.into(),
            #[cfg(all(feature = "std", not(loom)))]
            free: None,
        }
    }
}

#[cfg(all(feature = "std", not(loom)))]
impl<'s, T> Runs<'s, T> {
    /// Creates runs that grow as far as `slots` can.
    pub const fn growing(slots: Slots<'s, T>) -> Self {
        Self {
            slots,
            free: Some(FreeRuns::new()),
        }
    }
}

impl<T> Runs<'_, T> {
    /// Returns the slot at an index, if it is made.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)
    }

    /// Returns all slots that are made.
    #[inline]
    pub(crate) fn made(&self) -> &[T] {
        self.slots.made()
    }

    /// Returns the capacity.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slots of a run.
    pub(crate) fn run(&self, base: u32, count: u32) -> &[T] {
        let base = base as usize;
        self.made()
            .get(base..base.saturating_add(count as usize))
            .unwrap_or_default()
    }

    /// Takes a run of `count` slots; returns its first index. Needs the control lock.
    ///
    /// The caller marks the slots as used.
    pub(crate) fn take(&self, count: u32) -> Option<u32>
    where
        T: RunSlot,
    {
        #[cfg(all(feature = "std", not(loom)))]
        if let Some(free) = &self.free {
            return self.take_or_grow(free, count);
        }
        let count = count as usize;
        let mut start = 0_usize;
        let mut found = 0_usize;
        for (index, slot) in self.made().iter().enumerate() {
            if found == count {
                break;
            }
            if slot.is_unowned() {
                found = found.saturating_add(1);
            } else {
                found = 0;
                start = index.saturating_add(1);
            }
        }
        let end = start.saturating_add(count);
        self.slots.make(end).then(|| u32::try_from(start).ok())?
    }

    /// Takes a free run of `count` slots, and makes slots for it if there is none.
    #[cfg(all(feature = "std", not(loom)))]
    fn take_or_grow(&self, free: &FreeRuns, count: u32) -> Option<u32>
    where
        T: RunSlot,
    {
        if let Some(base) = free.take(self.made(), count) {
            return Some(base);
        }
        let end = free.needed(self.made(), count)?;
        if !self.slots.make(end as usize) {
            return None;
        }
        free.grow(self.made(), end);
        free.take(self.made(), count)
    }

    /// Takes a certain run of slots that are free. Needs the control lock.
    ///
    /// The caller marks the slots as used.
    pub(crate) fn take_at(&self, base: u32, count: u32)
    where
        T: RunSlot,
    {
        #[cfg(all(feature = "std", not(loom)))]
        if let Some(free) = &self.free {
            free.take_at(self.made(), base, count);
        }
        let _ = (base, count);
    }

    /// Gives back a run of slots, which are marked as free. Needs the control lock.
    pub(crate) fn give_back(&self, base: u32, count: u32)
    where
        T: RunSlot,
    {
        #[cfg(all(feature = "std", not(loom)))]
        if let Some(free) = &self.free {
            free.give_back(self.made(), base, count);
        }
        let _ = (base, count);
    }
}

impl<T> fmt::Debug for Runs<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("most", &self.slots.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::id::{EpId, Handle};
    use crate::record::{self, Owner, RecordSlot};

    const OWNER: Owner = Owner::Requests(EpId::from_handle(Handle::from_raw(1)));

    fn growing(most: usize) -> Runs<'static, RecordSlot> {
        let slots = (0..most).map(|_| core::mem::MaybeUninit::uninit());
        Runs::growing(Slots::growing(Vec::leak(slots.collect()), || {
            RecordSlot::EMPTY
        }))
    }

    fn take(runs: &Runs<'_, RecordSlot>, count: u32) -> Option<u32> {
        record::allocate(runs, OWNER, count)
    }

    #[test]
    fn slots_are_made_as_runs_need_them() {
        let runs = growing(10);
        assert_eq!((take(&runs, 4), take(&runs, 5)), (Some(0), Some(4)));
        assert_eq!(runs.made().len(), 9);
        record::give_back(&runs, 2, 4);
        assert_eq!((take(&runs, 5), take(&runs, 3)), (None, Some(2)));
        assert_eq!((take(&runs, 1), take(&runs, 1)), (Some(5), Some(9)));
        assert_eq!((take(&runs, 1), runs.made().len()), (None, 10));
    }

    /// A queue that fails to grow takes its former run again.
    #[test]
    fn certain_run_is_taken() {
        let runs = growing(10);
        assert_eq!(take(&runs, 10), Some(0));
        record::give_back(&runs, 0, 10);
        record::allocate_at(&runs, OWNER, 3, 4);
        assert_eq!((take(&runs, 4), take(&runs, 3)), (None, Some(7)));
        assert_eq!((take(&runs, 3), take(&runs, 1)), (Some(0), None));
    }

    #[test]
    fn lent_slice_is_scanned() {
        let mut slots = [const { RecordSlot::EMPTY }; 5];
        let runs = Runs::from(&mut slots[..]);
        assert_eq!(take(&runs, 5), Some(0));
        for (base, count) in [(0, 1), (2, 2)] {
            record::give_back(&runs, base, count);
        }
        assert_eq!((take(&runs, 3), take(&runs, 2)), (None, Some(2)));
        assert_eq!((take(&runs, 1), take(&runs, 1)), (Some(0), None));
    }
}
