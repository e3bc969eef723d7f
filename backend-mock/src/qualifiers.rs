//! The connection qualifiers of a host.

use alloc::collections::BTreeMap;

/// First qualifier for a listener that takes any.
const FIRST: u64 = 0x8000;

/// Listener by its adapter and its key there.
pub(crate) type ListenerName = (usize, u32);

/// Qualifiers in use, each by one listener.
#[derive(Debug)]
pub(crate) struct Qualifiers {
    listeners: BTreeMap<u64, ListenerName>,
    /// Runs of qualifiers in use: the last of each by the first.
    runs: BTreeMap<u64, u64>,
    /// First qualifier to try for a listener that takes any.
    next: u64,
}

impl Qualifiers {
    pub(crate) fn new() -> Self {
        Self {
            listeners: BTreeMap::new(),
            runs: BTreeMap::new(),
            next: FIRST,
        }
    }

    /// Returns the listener on a qualifier.
    pub(crate) fn get(&self, qualifier: u64) -> Option<ListenerName> {
        self.listeners.get(&qualifier).copied()
    }

    /// Returns the first free one of `count` qualifiers, from the one after the last choice on.
    pub(crate) fn choose(&mut self, count: u32) -> Option<u64> {
        let count = u64::from(count);
        let start = FIRST + (self.next - FIRST).checked_rem(count)?;
        let free = [start, FIRST]
            .into_iter()
            .filter_map(|from| self.first_free(from))
            .find(|free| *free < FIRST + count)?;
        self.next = free + 1;
        Some(free)
    }

    fn first_free(&self, from: u64) -> Option<u64> {
        match self.runs.range(..=from).next_back() {
            Some((_, last)) if *last >= from => last.checked_add(1),
            _ => Some(from),
        }
    }

    /// Gives a free qualifier to a listener.
    pub(crate) fn take(&mut self, qualifier: u64, listener: ListenerName) {
        let before = self.runs.range(..qualifier).next_back();
        let first = match before {
            Some((first, last)) if *last + 1 == qualifier => *first,
            _ => qualifier,
        };
        let after = qualifier.checked_add(1);
        let last = after.and_then(|after| self.runs.remove(&after));
        self.runs.insert(first, last.unwrap_or(qualifier));
        self.listeners.insert(qualifier, listener);
    }

    /// Frees a qualifier.
    pub(crate) fn free(&mut self, qualifier: u64) {
        if self.listeners.remove(&qualifier).is_none() {
            return;
        }
        let run = self.runs.range(..=qualifier).next_back();
        let Some((first, last)) = run.map(|(first, last)| (*first, *last)) else {
            return;
        };
        self.runs.remove(&first);
        if first < qualifier {
            self.runs.insert(first, qualifier - 1);
        }
        if qualifier < last {
            self.runs.insert(qualifier + 1, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ListenerName = (0, 1);

    fn choose(qualifiers: &mut Qualifiers, count: u32) -> Option<u64> {
        let free = qualifiers.choose(count)?;
        qualifiers.take(free, NAME);
        Some(free - FIRST)
    }

    /// Spec: PSA-01
    #[test]
    fn free_qualifiers_are_chosen_in_turn() {
        let mut qualifiers = Qualifiers::new();
        for fixed in [0, FIRST + 1, FIRST + 4, u64::MAX - 1, u64::MAX] {
            qualifiers.take(fixed, NAME);
        }
        assert_eq!(qualifiers.choose(0), None);
        let chosen: Vec<u64> = core::iter::from_fn(|| choose(&mut qualifiers, 6)).collect();
        assert_eq!(chosen, [0, 2, 3, 5]);
        for freed in [3, 0, 2] {
            qualifiers.free(FIRST + freed);
        }
        assert_eq!(choose(&mut qualifiers, 6), Some(0));
        assert_eq!(choose(&mut qualifiers, 6), Some(2));
        qualifiers.free(FIRST);
        assert_eq!(choose(&mut qualifiers, 6), Some(3), "after the last choice");
        assert_eq!(choose(&mut qualifiers, 6), Some(0));
        assert_eq!(choose(&mut qualifiers, 6), None);
        assert_eq!(choose(&mut qualifiers, 7), Some(6));
    }

    #[test]
    fn runs_of_used_qualifiers_join_and_split() {
        let mut qualifiers = Qualifiers::new();
        for qualifier in [2, 4, 3, u64::MAX, 0, 1] {
            qualifiers.take(qualifier, NAME);
        }
        let runs = |qualifiers: &Qualifiers| Vec::from_iter(qualifiers.runs.clone());
        assert_eq!(runs(&qualifiers), [(0, 4), (u64::MAX, u64::MAX)]);
        for qualifier in [2, 2, 0, u64::MAX, 4] {
            qualifiers.free(qualifier);
        }
        assert_eq!(runs(&qualifiers), [(1, 1), (3, 3)]);
        assert_eq!(qualifiers.get(3), Some(NAME));
        assert_eq!(qualifiers.get(4), None);
    }
}
