//! Numbers that a peer may name: keys of regions and windows, QPNs, communication ids.
//!
//! A number is a slot and the generation of its occupant, through a secret permutation: its holder
//! learns nothing about other numbers (ROCE-128, ROCE-56). A peer that guesses a key has one try
//! for each connection, since a wrong key ends it. With n keys valid, a try succeeds with a
//! probability of n / 2^32: one in 4.3 million at 1,000 keys, one in 4,295 at 1,000,000.

mod permutation;

use super::Slots;
use permutation::Permutation;

/// Free slots of this fraction of the table are kept, so that generations are used up slowly.
const RESERVE: u32 = 16;

/// The fewest bits of a generation.
const GENERATION_BITS: u32 = 8;

/// Marks the end of the list of free slots.
const NONE: u32 = u32::MAX;

/// A slot of a number; the caller lends a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct NumberSlot<T> {
    /// Object that the number stands for, while it is valid.
    entry: Option<T>,
    generation: u32,
    /// The free slot after this one.
    next: u32,
}

impl<T> NumberSlot<T> {
    /// A slot that no number names.
    pub const EMPTY: Self = Self {
        entry: None,
        generation: 0,
        next: NONE,
    };
}

/// The numbers that a table draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// Keys and communication ids: 32 bits, not 0.
    Word,
    /// QPNs: 24 bits, not 0, 1 or 0xFFFFFF (ROCE-56).
    Qpn,
}

impl NumberKind {
    const fn bits(self) -> u32 {
        match self {
            Self::Word => 32,
            Self::Qpn => 24,
        }
    }

    /// Returns true if a number has a meaning of its own.
    const fn is_reserved(self, number: u32) -> bool {
        match self {
            Self::Word => number == 0,
            Self::Qpn => matches!(number, 0 | 1 | 0xFF_FFFF),
        }
    }
}

/// The numbers of one kind of an adapter; regions and windows draw from one table.
#[derive(Debug)]
pub struct NumberTable<'s, T> {
    kind: NumberKind,
    permutation: Permutation,
    slots: Slots<'s, NumberSlot<T>>,
    /// Low bits of a number before the permutation that are the slot.
    bits: u32,
    /// The slot that has been free the longest.
    first: u32,
    last: u32,
    free: u32,
}

impl<'s, T> NumberTable<'s, T> {
    /// Makes a table of slots; `None` if there are fewer than 2, or so many that less than 8 bits
    /// are left for generations.
    ///
    /// `secret` must be random for each adapter.
    pub fn new(
        kind: NumberKind,
        secret: [u8; 16],
        slots: impl Into<Slots<'s, NumberSlot<T>>>,
    ) -> Option<Self> {
        let mut slots = slots.into();
        let count = u32::try_from(slots.len()).ok()?;
        if !(2..=1 << (kind.bits() - GENERATION_BITS)).contains(&count) {
            return None;
        }
        for (slot, next) in slots.iter_mut().zip(1..) {
            slot.entry = None;
            slot.generation = 0;
            slot.next = next;
        }
        let last = count.saturating_sub(1);
        if let Some(slot) = slots.last_mut() {
            slot.next = NONE;
        }
        Some(Self {
            kind,
            permutation: Permutation::new(secret, kind.bits() / 2),
            slots,
            bits: u32::BITS.saturating_sub(last.leading_zeros()),
            first: 0,
            last,
            free: count,
        })
    }

    /// Returns how many numbers can be valid at a time.
    pub fn capacity(&self) -> usize {
        self.slots.len().saturating_sub(self.reserve() as usize)
    }

    /// Draws a number that stands for `entry`; `None` if the table is full.
    ///
    /// The number takes the slot that has been free the longest. A sixteenth of the slots stays
    /// free, so that no number of 32 bits repeats before 2^28 are drawn (ROCE-130), and none of 24
    /// bits before 2^20.
    pub fn draw(&mut self, entry: T) -> Option<u32> {
        self.draw_with(|_| entry)
    }

    /// As [`draw`](Self::draw), for an entry that is made with its number.
    pub fn draw_with(&mut self, entry: impl FnOnce(u32) -> T) -> Option<u32> {
        if self.free <= self.reserve() {
            return None;
        }
        let index = self.first;
        let position = usize::try_from(index).ok()?;
        let mut generation = self.slots.get(position)?.generation;
        // There are fewer reserved numbers than generations, so that a few steps find another one.
        let number = (0..GENERATION_BITS).find_map(|_| {
            generation = generation.wrapping_add(1);
            let number = self.permutation.apply(self.join(generation, index));
            (!self.kind.is_reserved(number)).then_some(number)
        })?;
        let slot = self.slots.get_mut(position)?;
        slot.generation = generation;
        slot.entry = Some(entry(number));
        self.first = slot.next;
        self.free = self.free.saturating_sub(1);
        Some(number)
    }

    /// Returns what a number stands for; `None` if it is not valid.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.find(number)?)?.entry.as_ref()
    }

    /// As [`get`](Self::get), to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.find(number)?;
        self.slots.get_mut(index)?.entry.as_mut()
    }

    /// Ends a number and returns what it stood for; `None` if it is not valid.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let position = self.find(number)?;
        let slot = self.slots.get_mut(position)?;
        let entry = slot.entry.take()?;
        slot.next = NONE;
        let index = u32::try_from(position).ok()?;
        // At least one slot is always free, so that the list has an end.
        let last = usize::try_from(self.last).ok()?;
        if let Some(last) = self.slots.get_mut(last) {
            last.next = index;
        }
        self.last = index;
        self.free = self.free.saturating_add(1);
        Some(entry)
    }

    /// Returns what all valid numbers stand for.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// Returns the slot of a number that is valid now or was the last one of the slot.
    fn find(&self, number: u32) -> Option<usize> {
        if number >> (self.kind.bits() - 1) > 1 {
            return None;
        }
        let joined = self.permutation.invert(number);
        let index = joined & (1_u32 << self.bits).wrapping_sub(1);
        let position = usize::try_from(index).ok()?;
        let current = self.slots.get(position)?.generation;
        (self.join(current, index) == joined).then_some(position)
    }

    /// Returns a slot and the low bits of its generation as one number.
    const fn join(&self, generation: u32, index: u32) -> u32 {
        let unused = u32::BITS - self.kind.bits();
        (generation << self.bits | index) << unused >> unused
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
        let mut slots = [NumberSlot::EMPTY; 256];
        let mut table = NumberTable::new(NumberKind::Word, [3; 16], &mut slots).expect("a table");
        // All but one number are taken for good; the last one comes and goes.
        for _ in 1..table.capacity() {
            table.draw(()).expect("room");
        }
        assert_eq!(table.reserve(), 16);
        let mut drawn = HashMap::new();
        for draw in 0..1_000 {
            let before = drawn.insert(table.first, draw);
            assert!(before.is_none_or(|before| draw - before > 16), "{draw}");
            let number = table.draw(()).expect("room");
            table.remove(number);
        }
        // 2^24 slots have 2^8 generations, and 2^20 in reserve: 2^28 draws.
        let bits = 24;
        assert!((1_u64 << bits).div_ceil(16) << (32 - bits) >= 1 << 28);
    }

    /// Spec: ROCE-56, ROCE-128
    #[test]
    fn numbers_with_a_meaning_of_their_own_are_passed_over() {
        for (kind, reserved) in [
            (NumberKind::Word, 0),
            (NumberKind::Qpn, 0),
            (NumberKind::Qpn, 1),
            (NumberKind::Qpn, 0xFF_FFFF),
        ] {
            let mut slots = [NumberSlot::EMPTY; 64];
            let mut table = NumberTable::new(kind, [6; 16], &mut slots).expect("a table");
            // The next draw would give the reserved number.
            let joined = table.permutation.invert(reserved);
            let index = joined & 63;
            table.first = index;
            table.slots[index as usize].generation = (joined >> 6).wrapping_sub(1);
            let number = table.draw(7).expect("room");
            assert_ne!(number, reserved);
            assert_eq!((table.get(number), table.get(reserved)), (Some(&7), None));
        }
    }
}
