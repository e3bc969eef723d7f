//! Keys of regions and windows.
//!
//! A key is a slot and the generation of its occupant, through a secret permutation: its holder
//! learns nothing about other keys (ROCE-128). A peer that guesses has one try for each connection,
//! since a wrong key ends it. With n keys valid, a try succeeds with a probability of n / 2^32: one
//! in 4.3 million at 1,000 keys, one in 4,295 at 1,000,000.

mod permutation;

use permutation::Permutation;

/// Free slots of this fraction of the table are kept, so that generations are used up slowly.
const RESERVE: u32 = 16;

/// Marks the end of the list of free slots.
const NONE: u32 = u32::MAX;

/// A slot of a key; the caller lends a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct KeySlot<T> {
    /// What the key grants, while it is valid.
    grant: Option<T>,
    generation: u32,
    /// The free slot after this one.
    next: u32,
}

impl<T> KeySlot<T> {
    /// A slot that no key names.
    pub const EMPTY: Self = Self {
        grant: None,
        generation: 0,
        next: NONE,
    };
}

/// The keys of an adapter: regions and windows draw from one table.
#[derive(Debug)]
pub struct KeyTable<'s, T> {
    permutation: Permutation,
    slots: &'s mut [KeySlot<T>],
    /// Low bits of a permuted key that are the slot.
    bits: u32,
    /// The slot that has been free the longest.
    first: u32,
    last: u32,
    free: u32,
}

impl<'s, T> KeyTable<'s, T> {
    /// Makes a table of slots; `None` if there are more than 2^24 or fewer than 2.
    ///
    /// `secret` must be random for each adapter.
    pub fn new(secret: [u8; 16], slots: &'s mut [KeySlot<T>]) -> Option<Self> {
        let count = u32::try_from(slots.len()).ok()?;
        if !(2..=1 << 24).contains(&count) {
            return None;
        }
        for (slot, next) in slots.iter_mut().zip(1..) {
            slot.grant = None;
            slot.generation = 0;
            slot.next = next;
        }
        let last = count.saturating_sub(1);
        if let Some(slot) = slots.last_mut() {
            slot.next = NONE;
        }
        Some(Self {
            permutation: Permutation::new(secret),
            slots,
            bits: u32::BITS.saturating_sub(last.leading_zeros()),
            first: 0,
            last,
            free: count,
        })
    }

    /// Returns the number of keys that can be valid at a time.
    pub fn capacity(&self) -> usize {
        self.slots.len().saturating_sub(self.reserve() as usize)
    }

    /// Draws a key that grants `grant`; `None` if the table is full.
    ///
    /// The key takes the slot that has been free the longest. A sixteenth of the slots stays free,
    /// so that no key repeats before 2^28 are drawn (ROCE-130). No key is 0.
    pub fn draw(&mut self, grant: T) -> Option<u32> {
        if self.free <= self.reserve() {
            return None;
        }
        let index = self.first;
        let bits = self.bits;
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        slot.generation = slot.generation.wrapping_add(1);
        let mut key = self.permutation.apply(slot.generation << bits | index);
        if key == 0 {
            slot.generation = slot.generation.wrapping_add(1);
            key = self.permutation.apply(slot.generation << bits | index);
        }
        slot.grant = Some(grant);
        self.first = slot.next;
        self.free = self.free.saturating_sub(1);
        Some(key)
    }

    /// Returns what a key grants; `None` if it is not valid.
    pub fn get(&self, key: u32) -> Option<&T> {
        self.slots.get(self.find(key)?)?.grant.as_ref()
    }

    /// Ends a key and returns what it granted; `None` if it is not valid.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let index = self.find(key)?;
        let slot = self.slots.get_mut(index)?;
        let grant = slot.grant.take()?;
        slot.next = NONE;
        let index = u32::try_from(index).ok()?;
        // At least one slot is always free, so that the list has an end.
        let last = usize::try_from(self.last).ok()?;
        if let Some(last) = self.slots.get_mut(last) {
            last.next = index;
        }
        self.last = index;
        self.free = self.free.saturating_add(1);
        Some(grant)
    }

    /// Returns the slot of a key that is valid now or was the last one of the slot.
    fn find(&self, key: u32) -> Option<usize> {
        let number = self.permutation.invert(key);
        let mask = (1_u32 << self.bits).wrapping_sub(1);
        let index = usize::try_from(number & mask).ok()?;
        let slot = self.slots.get(index)?;
        let generation = number >> self.bits;
        let current = slot.generation << self.bits >> self.bits;
        (generation == current).then_some(index)
    }

    fn reserve(&self) -> u32 {
        (1_u32 << self.bits).div_ceil(RESERVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Spec: ROCE-130
    #[test]
    fn a_slot_rests_for_as_many_draws_as_there_are_in_reserve() {
        let mut slots = [KeySlot::EMPTY; 256];
        let mut table = KeyTable::new([3; 16], &mut slots).expect("a table");
        // All but one key are taken for good; the last one comes and goes.
        for _ in 1..table.capacity() {
            table.draw(()).expect("room");
        }
        assert_eq!(table.reserve(), 16);
        let mut drawn = HashMap::new();
        for draw in 0..1_000 {
            let before = drawn.insert(table.first, draw);
            assert!(before.is_none_or(|before| draw - before > 16), "{draw}");
            let key = table.draw(()).expect("room");
            table.remove(key);
        }
        // 2^24 slots have 2^8 generations, and 2^20 in reserve: 2^28 draws.
        let bits = 24;
        assert!((1_u64 << bits).div_ceil(16) << (32 - bits) >= 1 << 28);
    }
}
