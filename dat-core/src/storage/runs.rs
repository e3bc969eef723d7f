//! Slots that queues take in runs: records of requests, slots of events.

use core::fmt;

#[cfg(feature = "std")]
use super::{RunWord, free_runs::FreeRuns};
use crate::sync::Slots;

/// The slots of one kind that queues take in runs, lent to an adapter.
///
/// A slice of slots converts with `into`; a free run is then found by a scan. Runs that grow find
/// it in time that is logarithmic in their number.
pub struct Runs<'s, T> {
    slots: Slots<'s, T>,
    #[cfg(feature = "std")]
    free: Option<(FreeRuns, Slots<'s, RunWord>)>,
}

impl<'s, T> From<&'s mut [T]> for Runs<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            slots: slots.into(),
            #[cfg(feature = "std")]
            free: None,
        }
    }
}

#[cfg(feature = "std")]
impl<'s, T> Runs<'s, T> {
    /// Creates runs that grow as far as `slots` and `words` can.
    ///
    /// As many words as slots suffice.
    pub fn growing(slots: Slots<'s, T>, words: Slots<'s, RunWord>) -> Self {
        Self {
            slots,
            free: Some((FreeRuns::new(), words)),
        }
    }

    /// Takes a free run of `count` slots, and makes slots for it if there is none.
    fn take_or_grow(&self, free: &FreeRuns, words: &Slots<'s, RunWord>, count: u32) -> Option<u32> {
        if let Some(base) = free.take(words.made(), count) {
            return Some(base);
        }
        let end = free.needed(words.made(), count)?;
        let is_grown = self.slots.make(end as usize)
            && words.make(FreeRuns::words(end) as usize)
            && free.grow(words.made(), end);
        if is_grown {
            free.take(words.made(), count)
        } else {
            None
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
    /// The caller marks the slots, so that `is_free` is false for them.
    pub(crate) fn take(&self, count: u32, is_free: impl Fn(&T) -> bool) -> Option<u32> {
        #[cfg(feature = "std")]
        if let Some((free, words)) = &self.free {
            return self.take_or_grow(free, words, count);
        }
        let count = count as usize;
        let mut start = 0_usize;
        let mut found = 0_usize;
        for (index, slot) in self.made().iter().enumerate() {
            if found == count {
                break;
            }
            if is_free(slot) {
                found = found.saturating_add(1);
            } else {
                found = 0;
                start = index.saturating_add(1);
            }
        }
        let end = start.saturating_add(count);
        self.slots.make(end).then(|| u32::try_from(start).ok())?
    }

    /// Takes a certain run of slots that are free. Needs the control lock.
    pub(crate) fn take_at(&self, base: u32, count: u32) {
        #[cfg(feature = "std")]
        if let Some((free, words)) = &self.free {
            free.take_at(words.made(), base, count);
        }
        let _ = (base, count);
    }

    /// Gives back a run of slots, which are marked as free. Needs the control lock.
    pub(crate) fn give_back(&self, base: u32, count: u32) {
        #[cfg(feature = "std")]
        if let Some((free, words)) = &self.free {
            free.give_back(words.made(), base, count);
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

    fn growing(most: usize) -> Runs<'static, u8> {
        let slots = Vec::leak(
            (0..most)
                .map(|_| core::mem::MaybeUninit::uninit())
                .collect(),
        );
        let words = Vec::leak(
            (0..most)
                .map(|_| core::mem::MaybeUninit::uninit())
                .collect(),
        );
        Runs::growing(
            Slots::growing(slots, || 0),
            Slots::growing(words, || RunWord::EMPTY),
        )
    }

    fn take(runs: &Runs<'_, u8>, count: u32) -> Option<u32> {
        runs.take(count, |_| panic!("no scan"))
    }

    #[test]
    fn slots_are_made_as_runs_need_them() {
        let runs = growing(10);
        assert_eq!((take(&runs, 4), take(&runs, 5)), (Some(0), Some(4)));
        assert_eq!(runs.made().len(), 9);
        runs.give_back(2, 4);
        assert_eq!((take(&runs, 5), take(&runs, 3)), (None, Some(2)));
        assert_eq!((take(&runs, 1), take(&runs, 1)), (Some(5), Some(9)));
        assert_eq!((take(&runs, 1), runs.made().len()), (None, 10));
    }

    /// A queue that fails to grow takes its former run again.
    #[test]
    fn a_certain_run_is_taken() {
        let runs = growing(10);
        assert_eq!(take(&runs, 10), Some(0));
        runs.give_back(3, 4);
        runs.take_at(3, 4);
        assert_eq!(take(&runs, 1), None);
        runs.give_back(0, 10);
        runs.take_at(3, 4);
        assert_eq!((take(&runs, 4), take(&runs, 3)), (None, Some(0)));
        assert_eq!(take(&runs, 3), Some(7));
    }

    #[test]
    fn a_lent_slice_is_scanned() {
        let mut slots = [0_u8, 1, 0, 0, 1];
        let runs = Runs::from(&mut slots[..]);
        let take = |count| runs.take(count, |slot| *slot == 0);
        assert_eq!((take(1), take(2), take(3)), (Some(0), Some(2), None));
    }
}
