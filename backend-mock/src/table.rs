//! A table whose keys carry a generation.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Number of freed slots kept back before one of them is used again.
const QUARANTINE: usize = 64;
/// Most slots of a table: the range of the index half of a key.
const SLOTS: usize = 1 << 16;

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

/// Values by 32-bit keys: generation in the upper half, index in the lower.
///
/// A key is never 0. The key of a removed value returns only after its slot has gone through all
/// generations. Slots are used again in the order in which they were freed.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u16>,
    first_generation: u16,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::starting_at(1)
    }
}

impl<T> Table<T> {
    /// Makes an empty table; slots start at this generation (1 if it is 0).
    pub(crate) fn starting_at(generation: u16) -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            first_generation: generation.max(1),
        }
    }

    const fn key(generation: u16, index: usize) -> u32 {
        (generation as u32) << 16 | (index as u32 & 0xFFFF)
    }

    /// Stores a value; `None` if all slots are taken.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        let full = self.slots.len() == SLOTS;
        let reusable = self.free.len() > QUARANTINE || (full && !self.free.is_empty());
        if reusable {
            let index = usize::from(self.free.pop_front()?);
            let slot = self.slots.get_mut(index)?;
            slot.value = Some(value);
            return Some(Self::key(slot.generation, index));
        }
        if full {
            return None;
        }
        let index = self.slots.len();
        self.slots.push(Slot {
            generation: self.first_generation,
            value: Some(value),
        });
        Some(Self::key(self.first_generation, index))
    }

    fn slot(&self, key: u32) -> Option<&Slot<T>> {
        self.slots
            .get((key & 0xFFFF) as usize)
            .filter(|slot| u32::from(slot.generation) == key >> 16)
    }

    /// Returns the value under this key, unless it was removed.
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.slot(key)?.value.as_ref()
    }

    /// Returns the value under this key, to change it.
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.slots
            .get_mut((key & 0xFFFF) as usize)
            .filter(|slot| u32::from(slot.generation) == key >> 16)?
            .value
            .as_mut()
    }

    /// Removes a value; its key is invalid from now on.
    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        self.get(key)?;
        let index = key & 0xFFFF;
        let slot = self.slots.get_mut(index as usize)?;
        slot.generation = match slot.generation.wrapping_add(1) {
            0 => 1,
            generation => generation,
        };
        self.free.push_back(index as u16);
        slot.value.take()
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns all values with their keys, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            Some((Self::key(slot.generation, index), slot.value.as_ref()?))
        })
    }

    /// Returns all keys, in the order of their slots.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LMF-02, RMF-02
    #[test]
    fn a_removed_key_stays_dead() {
        let mut table = Table::default();
        let first = table.insert(1).unwrap();
        assert_ne!(first, 0);
        assert_eq!(table.remove(first), Some(1));
        assert_eq!(table.remove(first), None);
        let mut seen = vec![first];
        for round in 0..10_000 {
            let key = table.insert(round).unwrap();
            assert!(!seen.contains(&key), "round {round}");
            assert_eq!(table.get(first), None);
            assert_eq!(table.get(key), Some(&round));
            assert_eq!(table.remove(key), Some(round));
            if seen.len() < 200 {
                seen.push(key);
            }
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_full_table_refuses_and_recovers() {
        let mut table = Table::default();
        let keys: Vec<u32> = (0..SLOTS).filter_map(|value| table.insert(value)).collect();
        assert_eq!(keys.len(), SLOTS);
        assert_eq!(table.insert(0), None);
        table.remove(keys[7]);
        let key = table.insert(70).unwrap();
        assert_ne!(key, keys[7]);
        assert_eq!(table.get(keys[7]), None);
        assert_eq!(table.get(key), Some(&70));
    }
}
