//! Tables of objects by index, which can refuse to grow.

use alloc::vec::Vec;

use crate::reserve::Reserve;

/// Marks the end of the list of free slots.
const NONE: usize = usize::MAX;

enum Slot<T> {
    Used(T),
    /// A free slot, with the index of the next one.
    Free(usize),
}

/// Objects by index; a free index is used again.
///
/// The crate `slab` cannot report that there is no memory.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot.
    free: usize,
    used: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.used
    }

    /// Makes room for the next object; false if there is no memory for it.
    pub(crate) fn has_room(&mut self) -> bool {
        self.free != NONE || self.slots.try_reserve(1).is_ok()
    }

    /// Makes room for `count` objects in all; false if there is no memory for them.
    pub(crate) fn has_room_for(&mut self, count: usize) -> bool {
        self.slots.has_room_for(count)
    }

    /// Returns the index of the next object.
    pub(crate) const fn vacant_key(&self) -> usize {
        match self.free {
            NONE => self.slots.len(),
            index => index,
        }
    }

    /// Adds an object, for which [`has_room`](Self::has_room) made room; returns its index.
    pub(crate) fn insert(&mut self, object: T) -> usize {
        let index = self.vacant_key();
        match self.slots.get_mut(index) {
            Some(slot) => {
                if let Slot::Free(next) = *slot {
                    self.free = next;
                }
                *slot = Slot::Used(object);
            }
            None => self.slots.push(Slot::Used(object)),
        }
        self.used += 1;
        index
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self.slots.get(index)? {
            Slot::Used(object) => Some(object),
            Slot::Free(_) => None,
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.slots.get_mut(index)? {
            Slot::Used(object) => Some(object),
            Slot::Free(_) => None,
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.get(index).is_some()
    }

    /// Removes an object, if there is one at the index.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let slot = self.slots.get_mut(index)?;
        if let Slot::Free(_) = slot {
            return None;
        }
        let Slot::Used(object) = core::mem::replace(slot, Slot::Free(self.free)) else {
            return None;
        };
        self.free = index;
        self.used -= 1;
        Some(object)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| match slot {
            Slot::Used(object) => Some((index, object)),
            Slot::Free(_) => None,
        })
    }

    /// Returns a bound of the indices of objects.
    pub(crate) fn bound(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_again_after_its_object_is_removed() {
        let mut slab = Slab::new();
        for object in 0..4 {
            assert!(slab.has_room());
            assert_eq!(slab.vacant_key(), object);
            assert_eq!(slab.insert(object), object);
        }
        assert_eq!((slab.remove(1), slab.remove(3)), (Some(1), Some(3)));
        assert_eq!((slab.remove(1), slab.remove(9)), (None, None));
        assert_eq!(
            (slab.len(), slab.contains(3), slab.get(2)),
            (2, false, Some(&2))
        );
        assert_eq!((slab.insert(7), slab.insert(8), slab.insert(9)), (3, 1, 4));
        *slab.get_mut(2).expect("an object") = 5;
        let all: Vec<_> = slab
            .iter()
            .map(|(index, object)| (index, *object))
            .collect();
        assert_eq!(all, [(0, 0), (1, 8), (2, 5), (3, 7), (4, 9)]);
        assert!(slab.has_room_for(100) && slab.slots.capacity() >= 100);
        assert!(!slab.has_room_for(usize::MAX));
        slab.clear();
        assert_eq!((slab.len(), slab.get(0)), (0, None));
    }
}
