//! Table of the objects of one kind.

use core::fmt;

use super::Index;
#[cfg(feature = "std")]
use super::{FreeLink, free_list::FreeList};
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
