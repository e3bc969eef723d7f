//! A table whose keys are counted up.

use alloc::vec::Vec;

use crate::steps::step;

/// Values by 32-bit keys; a key is never 0.
///
/// A new key is one more than the last, except where its slot is taken. At most half of the slots
/// are, so an insert passes over one of them on average. The key of a removed value does not return
/// before 2^31 further inserts.
#[derive(Debug)]
pub(crate) struct KeyMap<T> {
    /// A power of two of slots; the low bits of a value's key are its slot.
    slots: Vec<Option<(u32, T)>>,
    values: usize,
    /// The last key.
    last: u32,
}

impl<T> Default for KeyMap<T> {
    fn default() -> Self {
        Self::starting_at(1)
    }
}

impl<T> KeyMap<T> {
    /// Makes an empty table; `first` is the upper half of the first key.
    pub(crate) fn starting_at(first: u16) -> Self {
        Self {
            slots: Vec::new(),
            values: 0,
            last: (u32::from(first) << 16).wrapping_sub(1),
        }
    }

    /// Returns the index of the slot of a key; out of range in a table without slots.
    fn index(&self, key: u32) -> usize {
        step();
        key as usize & self.slots.len().wrapping_sub(1)
    }

    fn slot(&mut self, key: u32) -> Option<&mut Option<(u32, T)>> {
        let index = self.index(key);
        self.slots.get_mut(index)
    }

    /// Stores a value; returns its key.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if self.values * 2 >= self.slots.len() {
            self.grow();
        }
        self.values += 1;
        loop {
            let key = self.last.wrapping_add(1);
            self.last = key;
            if let Some(slot @ None) = self.slot(key).filter(|_| key != 0) {
                *slot = Some((key, value));
                return key;
            }
        }
    }

    /// Doubles the number of slots.
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(8);
        let values = core::mem::take(&mut self.slots);
        self.slots.resize_with(slots, || None);
        for (key, value) in values.into_iter().flatten() {
            if let Some(slot) = self.slot(key) {
                *slot = Some((key, value));
            }
        }
    }

    /// Returns the value under this key, unless it was removed.
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        match self.slots.get(self.index(key))? {
            Some((held, value)) if *held == key => Some(value),
            _ => None,
        }
    }

    /// Returns the value under this key, to change it.
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        match self.slot(key)? {
            Some((held, value)) if *held == key => Some(value),
            _ => None,
        }
    }

    /// Removes a value; its key is invalid from now on.
    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let (_, value) = self.slot(key)?.take_if(|(held, _)| *held == key)?;
        self.values -= 1;
        Some(value)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.values
    }

    /// Returns all keys, in ascending order.
    pub(crate) fn keys(&self) -> Vec<u32> {
        let slots = self.slots.iter().inspect(|_| step());
        let mut keys: Vec<u32> = slots.flatten().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LMF-02, RMF-02
    #[test]
    fn a_removed_key_stays_dead() {
        let mut table = KeyMap::default();
        let first = table.insert(1);
        assert_ne!(first, 0);
        assert_eq!(table.remove(first), Some(1));
        assert_eq!(table.remove(first), None);
        let mut last = first;
        for round in 0..200_000 {
            let key = table.insert(round);
            assert!(key > last, "round {round}");
            last = key;
            assert_eq!(table.get(first), None);
            assert_eq!(table.get(key), Some(&round));
            assert_eq!(table.remove(key), Some(round));
        }
        assert_eq!(table.len(), 0);
        assert_eq!(table.slots.len(), 8);
    }

    #[test]
    fn keys_outlive_growth_and_the_end_of_the_numbers() {
        let mut table = KeyMap::starting_at(0xFFFF);
        let keys: Vec<u32> = (0..100_000).map(|value| table.insert(value)).collect();
        assert!(!keys.contains(&0));
        assert!(
            keys.iter()
                .zip(0..)
                .all(|(key, value)| table.get(*key) == Some(&value))
        );
        assert!(
            keys.iter()
                .step_by(2)
                .all(|key| table.remove(*key).is_some())
        );
        assert_eq!(table.len(), 50_000);
        assert!(keys.iter().step_by(2).all(|key| table.get(*key).is_none()));
        let mut left: Vec<u32> = keys.iter().skip(1).step_by(2).copied().collect();
        left.sort_unstable();
        assert_eq!(table.keys(), left);
    }

    /// Keys pass over the slots that are taken: one for each insert on average.
    #[test]
    fn inserts_are_fast_with_many_values() {
        let mut table = KeyMap::default();
        let kept: Vec<u32> = (0..40_000).map(|value| table.insert(value)).collect();
        let (first, rounds) = (table.last, 200_000);
        for _ in 0..rounds {
            let key = table.insert(0);
            table.remove(key);
        }
        assert!(table.last - first <= 2 * rounds);
        assert!(kept.iter().all(|key| table.get(*key).is_some()));
    }
}
