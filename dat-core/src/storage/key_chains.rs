//! Search of a table by a key of its slots, in constant time if the table may be long.

use super::Table;
use crate::id::Index;

/// Links of a slot in the chains of its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLinks {
    /// First slot of the chain that has this slot's number.
    #[cfg(feature = "std")]
    first: Option<Index>,
    /// Next slot of the chain that this slot is in.
    #[cfg(feature = "std")]
    next: Option<Index>,
}

impl KeyLinks {
    /// The links of a slot outside of all chains, in a table without chains.
    pub(crate) const NONE: Self = Self {
        #[cfg(feature = "std")]
        first: None,
        #[cfg(feature = "std")]
        next: None,
    };
}

/// A slot that is found by a key.
pub(crate) trait Keyed {
    /// Returns the key, unless the slot is free.
    fn key(&self) -> Option<u64>;
    #[cfg(feature = "std")]
    fn links(&self) -> &KeyLinks;
    #[cfg(feature = "std")]
    fn links_mut(&mut self) -> &mut KeyLinks;
}

/// Chains of the slots of a table by the hashes of their keys. Used under the control lock.
///
/// Each slot is also the head of a chain, so there are as many chains as slots, and no memory is
/// needed beside the table. When the table grows by a slot, one chain is split in two (linear
/// hashing); the others stay. Without the feature `std`, tables are short, and a search is a scan.
#[derive(Debug)]
pub(crate) struct KeyChains {
    /// Number of chains.
    #[cfg(feature = "std")]
    count: usize,
}

#[cfg(feature = "std")]
impl KeyChains {
    pub(crate) const fn new() -> Self {
        Self { count: 0 }
    }

    /// Returns the number of the chain for a key.
    ///
    /// With `count` chains, those below `count` less its highest power of two are split already.
    fn chain(&self, key: u64) -> usize {
        // The upper half of the product depends on all lower bits of the key.
        let hash = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        let mask = self.count.next_power_of_two().wrapping_sub(1);
        match hash & mask {
            chain if chain < self.count => chain,
            chain => chain & (mask >> 1),
        }
    }

    /// Returns the slot with a key.
    pub(crate) fn find<'t, T: Keyed>(&self, table: &'t Table<'_, T>, key: u64) -> Option<&'t T> {
        let mut next = table.get(self.chain(key))?.links().first;
        while let Some(index) = next {
            let slot = table.get(usize::from(index))?;
            if slot.key() == Some(key) {
                return Some(slot);
            }
            next = slot.links().next;
        }
        None
    }

    /// Enters a slot that has got its key.
    pub(crate) fn enter<T: Keyed>(&mut self, table: &mut Table<'_, T>, index: Index) {
        while self.count < table.made().len() {
            self.split(table);
        }
        if let Some(key) = table.get(usize::from(index)).and_then(T::key) {
            self.push(table, key, index);
        }
    }

    /// Adds a chain, and moves to it the slots that belong there.
    fn split<T: Keyed>(&mut self, table: &mut Table<'_, T>) {
        let new = self.count;
        self.count = new.wrapping_add(1);
        if let Some(head) = table.get_mut(new) {
            head.links_mut().first = None;
        }
        let Some(power) = new.checked_ilog2() else {
            return;
        };
        let Some(head) = table.get_mut(new & !(1 << power)) else {
            return;
        };
        let mut next = head.links_mut().first.take();
        while let Some(index) = next {
            let Some(slot) = table.get(usize::from(index)) else {
                return;
            };
            next = slot.links().next;
            if let Some(key) = slot.key() {
                self.push(table, key, index);
            }
        }
    }

    fn push<T: Keyed>(&self, table: &mut Table<'_, T>, key: u64, index: Index) {
        let Some(head) = table.get_mut(self.chain(key)) else {
            return;
        };
        let next = head.links_mut().first.replace(index);
        if let Some(slot) = table.get_mut(usize::from(index)) {
            slot.links_mut().next = next;
        }
    }

    /// Removes a slot that still has its key.
    pub(crate) fn leave<T: Keyed>(&self, table: &mut Table<'_, T>, index: Index) {
        let Some(slot) = table.get(usize::from(index)) else {
            return;
        };
        let Some(key) = slot.key() else {
            return;
        };
        let after = slot.links().next;
        let Some(head) = table.get_mut(self.chain(key)) else {
            return;
        };
        if head.links().first == Some(index) {
            head.links_mut().first = after;
            return;
        }
        let mut before = head.links().first;
        while let Some(slot) = before.and_then(|before| table.get_mut(usize::from(before))) {
            if slot.links().next == Some(index) {
                slot.links_mut().next = after;
                return;
            }
            before = slot.links().next;
        }
    }
}

#[cfg(not(feature = "std"))]
impl KeyChains {
    pub(crate) const fn new() -> Self {
        Self {}
    }

    /// Returns the slot with a key.
    pub(crate) fn find<'t, T: Keyed>(&self, table: &'t Table<'_, T>, key: u64) -> Option<&'t T> {
        table.made().iter().find(|slot| slot.key() == Some(key))
    }

    /// Has no effect: a search looks at all slots.
    pub(crate) fn enter<T: Keyed>(&mut self, _: &mut Table<'_, T>, _: Index) {}

    /// Has no effect.
    pub(crate) fn leave<T: Keyed>(&self, _: &mut Table<'_, T>, _: Index) {}
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;
    use crate::storage::FreeLink;
    use crate::sync::Slots;

    struct Slot {
        key: Option<u64>,
        links: KeyLinks,
    }

    impl Slot {
        const EMPTY: Self = Self {
            key: None,
            links: KeyLinks::NONE,
        };
    }

    impl Keyed for Slot {
        fn key(&self) -> Option<u64> {
            self.key
        }

        fn links(&self) -> &KeyLinks {
            &self.links
        }

        fn links_mut(&mut self) -> &mut KeyLinks {
            &mut self.links
        }
    }

    fn growing(most: usize) -> Table<'static, Slot> {
        let slots = Vec::leak(
            (0..most)
                .map(|_| core::mem::MaybeUninit::uninit())
                .collect(),
        );
        let links = Vec::leak(
            (0..most)
                .map(|_| core::mem::MaybeUninit::uninit())
                .collect(),
        );
        Table::growing(
            Slots::growing(slots, || Slot::EMPTY),
            Slots::growing(links, || FreeLink::EMPTY),
        )
    }

    fn enter(chains: &mut KeyChains, table: &mut Table<'_, Slot>, key: u64) -> Index {
        let (index, _) = table
            .find(0, |slot| slot.key.is_none().then_some(0))
            .unwrap();
        table.get_mut(usize::from(index)).unwrap().key = Some(key);
        table.claim(index);
        chains.enter(table, index);
        index
    }

    fn leave(chains: &KeyChains, table: &mut Table<'_, Slot>, index: Index) {
        chains.leave(table, index);
        table.get_mut(usize::from(index)).unwrap().key = None;
        let handle = crate::id::Handle::new(1, crate::flags::HandleKind::Psp, 1, index);
        table.give_back(handle);
    }

    /// Returns the length of the longest chain.
    fn longest(chains: &KeyChains, table: &Table<'_, Slot>) -> usize {
        let length = |chain: usize| {
            let first = table.get(chain).unwrap().links.first;
            core::iter::successors(first, |index| {
                table.get(usize::from(*index)).unwrap().links.next
            })
            .count()
        };
        (0..chains.count).map(length).max().unwrap_or(0)
    }

    /// Enters and removes keys in a mixed order, and compares with a map.
    fn compare(table: &mut Table<'_, Slot>, most: usize) {
        let (mut chains, mut known) = (KeyChains::new(), BTreeMap::new());
        let mut random = 7_u64;
        for step in 0..most as u64 * 6 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (random >> 40) % (2 * most as u64);
            assert_eq!(
                chains.find(table, key).is_some(),
                known.contains_key(&key),
                "step {step}"
            );
            if let Some(index) = known.remove(&key) {
                leave(&chains, table, index);
            } else if known.len() < most {
                known.insert(key, enter(&mut chains, table, key));
            }
        }
        for key in 0..2 * most as u64 {
            let found = chains.find(table, key).map(|slot| slot.key);
            assert_eq!(found, known.contains_key(&key).then_some(Some(key)));
        }
    }

    #[test]
    fn keys_are_found_while_the_table_grows() {
        compare(&mut growing(100), 100);
        compare(&mut growing(1), 1);
    }

    #[test]
    fn keys_are_found_in_a_lent_slice() {
        let mut slots = [const { Slot::EMPTY }; 33];
        compare(&mut Table::from(&mut slots[..]), 33);
    }

    /// Keys in sequence, as consumers number service points, spread over the chains.
    #[test]
    fn chains_stay_short() {
        let (mut table, mut chains) = (growing(20_000), KeyChains::new());
        for step in [1, 16, 65_536] {
            let entered: Vec<_> = (0..20_000)
                .map(|number| enter(&mut chains, &mut table, 1000 + number * step))
                .collect();
            assert!(
                longest(&chains, &table) <= 8,
                "{}",
                longest(&chains, &table)
            );
            for index in entered {
                leave(&chains, &mut table, index);
            }
            assert_eq!(longest(&chains, &table), 0);
        }
    }

    /// A table whose adapter was forgotten has links of that adapter.
    #[test]
    fn links_of_an_earlier_adapter_are_dropped() {
        let (mut table, mut chains) = (growing(4), KeyChains::new());
        for key in 0..4 {
            enter(&mut chains, &mut table, key);
        }
        for slot in table.made_mut() {
            slot.key = None;
        }
        let mut chains = KeyChains::new();
        assert!(chains.find(&table, 2).is_none());
        table.get_mut(3).unwrap().key = Some(9);
        chains.enter(&mut table, 3.into());
        assert!(chains.find(&table, 9).is_some() && chains.find(&table, 2).is_none());
    }
}
