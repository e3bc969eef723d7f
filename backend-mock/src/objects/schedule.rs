//! Pending actions, in the order of virtual time.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

#[derive(Debug)]
struct Due<A> {
    at: u64,
    tie: u32,
    number: u64,
    action: A,
}

impl<A> Due<A> {
    fn rank(&self) -> (u64, u32, u64) {
        (self.at, self.tie, self.number)
    }
}

impl<A> PartialEq for Due<A> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<A> Eq for Due<A> {}

impl<A> PartialOrd for Due<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A> Ord for Due<A> {
    /// Reversed: the heap keeps the greatest on top, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

/// Pending actions.
///
/// Among actions of the same time the tie decides, then the order in which they were added.
#[derive(Debug)]
pub(crate) struct Schedule<A> {
    due: BinaryHeap<Due<A>>,
    /// Actions of the same order that mostly have no effect, and would slow down the others.
    timeouts: BinaryHeap<Due<A>>,
    added: u64,
}

impl<A> Schedule<A> {
    pub(crate) fn new() -> Self {
        Self {
            due: BinaryHeap::with_capacity(256),
            timeouts: BinaryHeap::new(),
            added: 0,
        }
    }

    /// Adds an action for the time `at`, in microseconds.
    pub(crate) fn add(&mut self, at: u64, tie: u32, action: A) {
        let due = self.number(at, tie, action);
        self.due.push(due);
    }

    /// As [`add`](Self::add), for a timeout; however many there are, other actions cost the same.
    pub(crate) fn add_timeout(&mut self, at: u64, tie: u32, action: A) {
        let due = self.number(at, tie, action);
        self.timeouts.push(due);
    }

    fn number(&mut self, at: u64, tie: u32, action: A) -> Due<A> {
        self.added += 1;
        Due {
            at,
            tie,
            number: self.added,
            action,
        }
    }

    /// Returns the next action, with its rank.
    fn next(&self) -> Option<&Due<A>> {
        // The order is reversed, so the greater one is earlier.
        self.due.peek().max(self.timeouts.peek())
    }

    /// Returns the time of the next action.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.next().map(|due| due.at)
    }

    /// Returns the next action.
    pub(crate) fn peek(&self) -> Option<&A> {
        self.next().map(|due| &due.action)
    }

    /// Removes the next action; returns it and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, A)> {
        let heap = if self.due.peek() > self.timeouts.peek() {
            &mut self.due
        } else {
            &mut self.timeouts
        };
        heap.pop().map(|due| (due.at, due.action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_run_by_time_then_tie_then_order() {
        let mut schedule = Schedule::new();
        schedule.add(5, 0, 'd');
        schedule.add_timeout(1, 9, 'b');
        schedule.add(1, 2, 'a');
        schedule.add_timeout(5, 0, 'e');
        schedule.add(3, 0, 'c');
        assert_eq!(schedule.next_at(), Some(1));
        let order: String = core::iter::from_fn(|| schedule.pop().map(|(_, name)| name)).collect();
        assert_eq!(order, "abcde");
        assert_eq!(schedule.next_at(), None);
    }
}
