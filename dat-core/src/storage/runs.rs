//! Slots that queues take in runs: records of requests, slots of events.

use core::fmt;

use crate::sync::Slots;
#[cfg(feature = "std")]
use crate::sync::atomic::AtomicU32;

/// Link of the first slot of a free run.
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct RunLink {
    next: AtomicU32,
}

#[cfg(feature = "std")]
impl RunLink {
    /// The link of a slot that begins no free run.
    pub const EMPTY: Self = Self {
        next: AtomicU32::new(0),
    };
}

/// The slots of one kind that queues take in runs, lent to an adapter.
///
/// A slice of slots converts with `into`.
pub struct Runs<'s, T> {
    slots: Slots<'s, T>,
}

impl<'s, T> From<&'s mut [T]> for Runs<'s, T> {
    fn from(slots: &'s mut [T]) -> Self {
        Self {
            slots: slots.into(),
        }
    }
}

#[cfg(feature = "std")]
impl<'s, T> Runs<'s, T> {
    /// Creates runs that grow as far as both `slots` and `links` can.
    pub fn growing(slots: Slots<'s, T>, links: Slots<'s, RunLink>) -> Self {
        drop(links);
        Self { slots }
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
        let _ = (base, count);
    }

    /// Gives back a run of slots, which are marked as free. Needs the control lock.
    pub(crate) fn give_back(&self, base: u32, count: u32) {
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
