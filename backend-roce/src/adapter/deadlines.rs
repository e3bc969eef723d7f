//! The deadlines of an adapter's timers, in a heap that never allocates when one is set.

use alloc::vec::Vec;

use dat_core::time::Instant;

use crate::reserve::Reserve;

/// Kinds of timers whose owners are numbered.
const KINDS: usize = 5;

/// Marks a timer without a deadline.
const NONE: usize = usize::MAX;

/// Owner of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Pair(usize),
    /// A probe of the peer of a queue pair.
    Probe(usize),
    /// A connection, by its index.
    Link(usize),
    /// Queue pairs that wait for room in a buffer.
    Patience(usize),
    /// Requests that wait for the consumer.
    Gathered,
}

impl Timer {
    /// Returns the number of its kind, and its index among those of its kind.
    const fn position(self) -> (usize, usize) {
        match self {
            Self::Pair(index) => (0, index),
            Self::Probe(index) => (1, index),
            Self::Link(index) => (2, index),
            Self::Patience(index) => (3, index),
            Self::Gathered => (4, 0),
        }
    }
}

/// Deadlines of timers, at most one for each, the earliest one first.
///
/// A binary heap that knows the place of each timer. Crates with such a heap hash the timers, or
/// have licences that this project does not take.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, Timer)>,
    /// Places of the timers in the heap, by kind and index.
    places: [Vec<usize>; KINDS],
}

impl Deadlines {
    /// Makes room for a timer; false if there is no memory for it.
    ///
    /// Only a timer with room has deadlines.
    pub(super) fn has_room(&mut self, timer: Timer) -> bool {
        let (kind, index) = timer.position();
        let Some(places) = self.places.get_mut(kind) else {
            return false;
        };
        if index >= places.len() {
            if !places.has_room_for(index + 1) {
                return false;
            }
            places.resize(index + 1, NONE);
        }
        let timers = self.places.iter().map(Vec::len).sum::<usize>();
        self.heap.has_room_for(timers)
    }

    /// Returns the earliest deadline, with its timer.
    pub(super) fn first(&self) -> Option<(Instant, Timer)> {
        self.heap.first().copied()
    }

    /// Returns all timers with deadlines, in no particular order.
    pub(super) fn timers(&self) -> impl Iterator<Item = Timer> {
        self.heap.iter().map(|(_, timer)| *timer)
    }

    /// Returns true if a timer has a deadline.
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.place(timer).is_some()
    }

    /// Sets the deadline of a timer, or takes it away.
    pub(super) fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        match (self.place(timer), deadline) {
            (None, None) => {}
            (Some(place), Some(new)) => {
                let before = self.heap.get(place).map(|(before, _)| *before);
                if before != Some(new) {
                    self.settle(place, (new, timer));
                }
            }
            (None, Some(new)) => {
                let last = self.heap.len();
                self.heap.push((new, timer));
                self.settle(last, (new, timer));
            }
            (Some(place), None) => {
                self.note(timer, NONE);
                if let Some(last) = self.heap.pop()
                    && place < self.heap.len()
                {
                    self.settle(place, last);
                }
            }
        }
    }

    fn place(&self, timer: Timer) -> Option<usize> {
        let (kind, index) = timer.position();
        let place = self.places.get(kind)?.get(index)?;
        (*place != NONE).then_some(*place)
    }

    fn note(&mut self, timer: Timer, place: usize) {
        let (kind, index) = timer.position();
        let places = self.places.get_mut(kind);
        if let Some(noted) = places.and_then(|places| places.get_mut(index)) {
            *noted = place;
        }
    }

    fn put(&mut self, place: usize, entry: (Instant, Timer)) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = entry;
            self.note(entry.1, place);
        }
    }

    /// Puts an entry where it belongs, up or down from a place whose entry is void.
    fn settle(&mut self, mut place: usize, entry: (Instant, Timer)) {
        while let Some(before) = place.checked_sub(1)
            && let Some(above) = self.heap.get(before / 2).copied()
            && entry < above
        {
            self.put(place, above);
            place = before / 2;
        }
        let child = |heap: &[(Instant, Timer)], place: usize| {
            let below = place.checked_mul(2)?.checked_add(1)?;
            let children = heap.iter().enumerate().skip(below).take(2);
            let least = children.min_by_key(|(_, entry)| **entry)?;
            Some((least.0, *least.1))
        };
        while let Some((below, least)) = child(&self.heap, place)
            && least < entry
        {
            self.put(place, least);
            place = below;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// Timers have their deadlines in order, whatever is set before, and setting one allocates
    /// nothing.
    ///
    /// Spec: ROCE-199
    #[test]
    fn deadlines_are_in_order_and_take_no_memory() {
        let seed = fastrand::u64(..);
        std::println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let timer = |kind, index| match kind {
            0 => Timer::Pair(index),
            1 => Timer::Probe(index),
            2 => Timer::Link(index),
            3 => Timer::Patience(index),
            _ => Timer::Gathered,
        };
        for count in [1, 2, 7, 40] {
            let mut deadlines = Deadlines::default();
            for index in 0..count {
                assert!((0..KINDS).all(|kind| deadlines.has_room(timer(kind, index))));
            }
            let room = deadlines.heap.capacity();
            let mut expected = BTreeSet::new();
            for _ in 0..5_000 {
                let timer = timer(random.usize(..KINDS), random.usize(..count));
                let new = random.u64(..60);
                let new = (new >= 20).then(|| Instant::from_micros(new));
                expected.retain(|(_, other)| *other != timer);
                expected.extend(new.map(|new| (new, timer)));
                deadlines.set(timer, new);
                assert_eq!(deadlines.is_set(timer), new.is_some());
                assert_eq!(deadlines.first(), expected.first().copied());
                assert_eq!(deadlines.timers().count(), expected.len());
            }
            while let Some(first) = expected.pop_first() {
                assert_eq!(deadlines.first(), Some(first));
                deadlines.set(first.1, None);
            }
            assert_eq!((deadlines.first(), deadlines.heap.capacity()), (None, room));
        }
    }

    /// Timers of one time come in the order of their owners, so that runs repeat.
    #[test]
    fn timers_of_one_time_have_an_order() {
        let mut deadlines = Deadlines::default();
        let timers = [Timer::Patience(0), Timer::Pair(1), Timer::Pair(0)];
        for timer in timers {
            assert!(deadlines.has_room(timer));
            deadlines.set(timer, Some(Instant::ZERO));
        }
        for timer in timers.iter().rev() {
            assert_eq!(deadlines.first(), Some((Instant::ZERO, *timer)));
            deadlines.set(*timer, None);
        }
    }
}
