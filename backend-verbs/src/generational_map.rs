//! A map whose keys carry a generation.

use std::collections::VecDeque;

/// Low bits of a key: the index.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
/// Last generation: keys stay below 2^48, so that owners can use the bits above.
const LAST_GENERATION: usize = (1 << 24) - 1;

#[derive(Debug)]
struct Slot<T> {
    /// Key of the value, or of the next value if the slot is empty.
    key: usize,
    value: Option<T>,
}

/// Values under keys that are never 0.
///
/// A removed key stays unused until `clear`: its slot gets the next generation, and retires after
/// the last one.
#[derive(Debug)]
pub(crate) struct GenerationalMap<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<usize>,
}

impl<T> Default for GenerationalMap<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
        }
    }
}

const fn key(generation: usize, index: usize) -> usize {
    generation << INDEX_BITS | index
}

impl<T> GenerationalMap<T> {
    /// Returns the key of the next insertion; `None` if the table is full.
    pub(crate) fn next_key(&self) -> Option<usize> {
        if let Some(&index) = self.free.front() {
            return self.slots.get(index).map(|slot| slot.key);
        }
        let index = self.slots.len();
        (index <= INDEX_MASK).then_some(key(1, index))
    }

    /// Stores a value; `None` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<usize> {
        let key = self.next_key()?;
        match self.free.pop_front() {
            Some(index) => self.slots.get_mut(index)?.value = Some(value),
            None => self.slots.push(Slot {
                key,
                value: Some(value),
            }),
        }
        Some(key)
    }

    /// Returns the value under `key`, unless it was removed.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&T> {
        let slot = self.slots.get(key & INDEX_MASK)?;
        if slot.key != key {
            return None;
        }
        slot.value.as_ref()
    }

    /// Returns the value under `key` for a change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut T> {
        let slot = self.slots.get_mut(key & INDEX_MASK)?;
        if slot.key != key {
            return None;
        }
        slot.value.as_mut()
    }

    /// Removes the value under `key` and returns it.
    pub(crate) fn remove(&mut self, key: usize) -> Option<T> {
        let index = key & INDEX_MASK;
        let slot = self.slots.get_mut(index)?;
        if slot.key != key {
            return None;
        }
        let value = slot.value.take()?;
        let generation = key >> INDEX_BITS;
        if generation < LAST_GENERATION {
            slot.key = self::key(generation + 1, index);
            self.free.push_back(index);
        }
        Some(value)
    }

    /// Iterates over all values with their keys, for changes.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.slots
            .iter_mut()
            .filter_map(|slot| Some((slot.key, slot.value.as_mut()?)))
    }

    /// Drops all values.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_is_never_valid_again() {
        let mut table = GenerationalMap::default();
        let first = table.insert("a").expect("room");
        assert_ne!(first, 0);
        assert_eq!(table.remove(first), Some("a"));
        assert_eq!(table.remove(first), None);
        let expected = table.next_key();
        let second = table.insert("b").expect("room");
        assert_eq!(Some(second), expected);
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "b"));
        assert_eq!(table.iter_mut().collect::<Vec<_>>(), [(second, &mut "b")]);
        table.clear();
        assert_eq!(table.get(second), None);
    }
}
