//! The connection qualifiers of a host.

use alloc::collections::VecDeque;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// First qualifier for a listener that takes any.
const FIRST: u64 = 0x8000;

/// Listener by its adapter and its key there.
pub(crate) type ListenerName = (usize, u32);

/// Qualifiers in use, each by one listener.
#[derive(Debug)]
pub(crate) struct Qualifiers {
    used: IndexMap<u64, Used, FxBuildHasher>,
    /// First qualifier that no choice has considered.
    next: u64,
    /// Qualifiers before `next` that a choice considers, longest free first; once each.
    ///
    /// One that a listener has asked for since it became free stays here.
    free: VecDeque<u64>,
}

/// A qualifier in use.
#[derive(Debug)]
struct Used {
    listener: ListenerName,
    /// Set if the qualifier was chosen, so that it goes to `free` afterwards.
    is_chosen: bool,
}

impl Qualifiers {
    pub(crate) fn new() -> Self {
        Self {
            used: IndexMap::default(),
            next: FIRST,
            free: VecDeque::new(),
        }
    }

    /// Returns the listener on a qualifier.
    pub(crate) fn get(&self, qualifier: u64) -> Option<ListenerName> {
        Some(self.used.get(&qualifier)?.listener)
    }

    /// Chooses one of `count` qualifiers for a listener, which must take it.
    ///
    /// It is one that no choice has considered, or else the one that is free longest.
    pub(crate) fn choose(&mut self, count: u32) -> Option<u64> {
        let end = FIRST + u64::from(count);
        loop {
            let qualifier = if self.next < end {
                self.next += 1;
                self.next - 1
            } else {
                self.free.pop_front()?
            };
            match self.used.get_mut(&qualifier) {
                // A listener asked for it.
                Some(used) => used.is_chosen = true,
                None => return Some(qualifier),
            }
        }
    }

    /// Gives a free qualifier to a listener: one that was just chosen, or that it asks for.
    pub(crate) fn take(&mut self, qualifier: u64, is_chosen: bool, listener: ListenerName) {
        let used = Used {
            listener,
            is_chosen,
        };
        self.used.insert(qualifier, used);
    }

    /// Frees a qualifier.
    pub(crate) fn free(&mut self, qualifier: u64) {
        let used = self.used.swap_remove(&qualifier);
        if used.is_some_and(|used| used.is_chosen) {
            self.free.push_back(qualifier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ListenerName = (0, 1);

    fn choose(qualifiers: &mut Qualifiers, count: u32) -> Option<u64> {
        let chosen = qualifiers.choose(count)?;
        qualifiers.take(chosen, true, NAME);
        Some(chosen - FIRST)
    }

    /// Spec: PSA-01
    #[test]
    fn free_qualifiers_are_chosen_in_turn() {
        let mut qualifiers = Qualifiers::new();
        for fixed in [0, FIRST + 1, FIRST + 4, u64::MAX - 1, u64::MAX] {
            qualifiers.take(fixed, false, NAME);
        }
        assert_eq!(choose(&mut qualifiers, 0), None);
        let chosen: Vec<u64> = core::iter::from_fn(|| choose(&mut qualifiers, 6)).collect();
        assert_eq!(chosen, [0, 2, 3, 5]);
        for freed in [3, 0, 2] {
            qualifiers.free(FIRST + freed);
        }
        assert_eq!(choose(&mut qualifiers, 6), Some(3), "free longest");
        assert_eq!(choose(&mut qualifiers, 6), Some(0));
        qualifiers.free(FIRST + 1);
        assert_eq!(choose(&mut qualifiers, 6), Some(2));
        assert_eq!(choose(&mut qualifiers, 6), Some(1));
        assert_eq!(choose(&mut qualifiers, 6), None);
        assert_eq!(choose(&mut qualifiers, 7), Some(6));
        for qualifier in [FIRST + 3, u64::MAX, 0] {
            assert_eq!(qualifiers.get(qualifier), Some(NAME));
        }
        assert_eq!(qualifiers.get(FIRST + 7), None);
    }

    /// A qualifier is chosen once, however often a listener asked for it meanwhile.
    #[test]
    fn qualifier_that_was_asked_for_meanwhile_is_chosen_once() {
        let mut qualifiers = Qualifiers::new();
        assert_eq!(
            [(); 2].map(|()| choose(&mut qualifiers, 2)),
            [Some(0), Some(1)]
        );
        qualifiers.free(FIRST);
        for _ in 0..3 {
            qualifiers.take(FIRST, false, NAME);
            assert_eq!(choose(&mut qualifiers, 2), None);
            qualifiers.free(FIRST);
            qualifiers.free(FIRST);
        }
        assert_eq!(qualifiers.free.len(), 1);
        assert_eq!(choose(&mut qualifiers, 2), Some(0));
        assert_eq!(choose(&mut qualifiers, 2), None);
        // A listener that asks before any choice came so far.
        qualifiers.take(FIRST + 2, false, NAME);
        qualifiers.free(FIRST + 2);
        assert_eq!(choose(&mut qualifiers, 3), Some(2));
    }
}
