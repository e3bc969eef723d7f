//! Allocator of runs: consecutive slots of a table that grows at its end.
//!
//! Each longest sequence of free slots is a free run. Free runs of similar length form a list, and
//! a bit for each list tells whether it is empty. A run that is given back is joined with the free
//! runs beside it. So a call takes the same time in a table of any length. No slot is lost to
//! alignment.
//!
//! The words of a free run are stored in its slots, which no queue uses. The links of the list are
//! in the first slot, the length is in the first and in the last one. A free slot beside a slot in
//! use is the first or the last slot of its run, so the words of other free slots are never read.
//!
//! All calls for one table are made under one lock, so relaxed accesses suffice.

use super::runs::RunSlot;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Largest number of slots.
pub(crate) const SLOTS_MAX: u32 = 1 << 31;

/// End of a list of runs.
const NO_RUN: u32 = u32::MAX;

/// Binary logarithm of the number of lists for lengths from a power of two to the next one.
const PART_ORDER: u32 = 2;
/// Number of these lists.
const PARTS: u32 = 1 << PART_ORDER;
/// Each length below this one has a list of its own.
const EXACT: u32 = PARTS << 1;
/// Number of lists.
const LISTS: usize = (EXACT + (u32::BITS - EXACT.trailing_zeros()) * PARTS) as usize;
/// Number of words with a bit for each list.
const WORDS: usize = LISTS.div_ceil(u32::BITS as usize);

/// Returns the number of the list for runs of `length` slots.
const fn list_of(length: u32) -> u32 {
    if length < EXACT {
        return length;
    }
    let order = length.ilog2();
    let part = length.wrapping_shr(order.wrapping_sub(PART_ORDER)) & (PARTS - 1);
    EXACT
        .wrapping_add((order.wrapping_sub(EXACT.trailing_zeros())).wrapping_mul(PARTS))
        .wrapping_add(part)
}

/// Words of a free run, stored in its first slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeRun {
    /// First slot of the next run in the list.
    pub(crate) next: u32,
    /// First slot of the previous run in the list.
    pub(crate) previous: u32,
    /// Number of slots; the last slot of the run stores it too.
    pub(crate) length: u32,
}

/// State of an allocator; the slots that are made are an argument of each call.
#[derive(Debug)]
pub(crate) struct FreeRuns {
    /// Length of the table.
    end: AtomicU32,
    /// First slot of the first run of each list.
    heads: [AtomicU32; LISTS],
    /// A bit for each list that is not empty.
    filled: [AtomicU32; WORDS],
}

impl FreeRuns {
    /// Creates an allocator without slots.
    pub(crate) const fn new() -> Self {
        Self {
            end: AtomicU32::new(0),
            heads: [const { AtomicU32::new(NO_RUN) }; LISTS],
            filled: [const { AtomicU32::new(0) }; WORDS],
        }
    }

    /// Takes a free run of `count` slots; returns its first slot.
    ///
    /// Returns `None` only if there is no such run. The caller can then grow the table to
    /// [`FreeRuns::needed`]. A run of 0 slots has base 0. The caller marks the slots as used.
    pub(crate) fn take<T: RunSlot>(&self, slots: &[T], count: u32) -> Option<u32> {
        if count == 0 {
            return Some(0);
        }
        let (base, length) = self.find(slots, count)?;
        self.remove(slots, base);
        let rest = length.saturating_sub(count);
        if rest != 0 {
            self.insert(slots, base.wrapping_add(count), rest);
        }
        Some(base)
    }

    /// Takes the run of `count` slots from `base`, which the caller knows to be free.
    ///
    /// Searches for the first slot of the free run that has them, so this is for rare calls.
    pub(crate) fn take_at<T: RunSlot>(&self, slots: &[T], base: u32, count: u32) {
        let before = slots.get(..base as usize).unwrap_or_default().iter().rev();
        let before = before.take_while(|slot| slot.is_unowned()).count() as u32;
        let first = base.saturating_sub(before);
        let Some(run) = free_at(slots, first).map(RunSlot::free_run) else {
            return;
        };
        let after = run.length.saturating_sub(before).saturating_sub(count);
        self.remove(slots, first);
        for (base, length) in [(first, before), (base.saturating_add(count), after)] {
            if length != 0 {
                self.insert(slots, base, length);
            }
        }
    }

    /// Gives back `count` slots from `base`, which the caller has marked as free.
    ///
    /// They may be a part of a run that was taken.
    pub(crate) fn give_back<T: RunSlot>(&self, slots: &[T], base: u32, count: u32) {
        let end = base.saturating_add(count);
        let table = slots.get(..self.end.load(Ordering::Relaxed) as usize);
        let Some(slots) = table.filter(|table| count != 0 && end as usize <= table.len()) else {
            return;
        };
        let (mut first, mut length) = (base, count);
        if let Some(before) = base.checked_sub(1).and_then(|last| free_at(slots, last)) {
            let joined = before.free_run().length;
            first = first.saturating_sub(joined);
            length = length.saturating_add(joined);
            self.remove(slots, first);
        }
        if let Some(after) = free_at(slots, end) {
            length = length.saturating_add(after.free_run().length);
            self.remove(slots, end);
        }
        self.insert(slots, first, length);
    }

    /// Returns the smallest length of the table for which `take` succeeds.
    ///
    /// Only for a `count` that `take` has just refused. The free slots at the end count. Returns
    /// `None` if the length exceeds [`SLOTS_MAX`].
    pub(crate) fn needed<T: RunSlot>(&self, slots: &[T], count: u32) -> Option<u32> {
        let end = self.end.load(Ordering::Relaxed);
        let last = end.checked_sub(1).and_then(|last| free_at(slots, last));
        let free = last.map_or(0, |last| last.free_run().length);
        let length = end.saturating_sub(free).checked_add(count);
        length.filter(|length| *length <= SLOTS_MAX)
    }

    /// Grows the table to `end` slots. The new slots are free.
    ///
    /// `slots` has them. A table that is as long already stays.
    pub(crate) fn grow<T: RunSlot>(&self, slots: &[T], end: u32) {
        let old = self.end.load(Ordering::Relaxed);
        if end > old {
            self.end.store(end, Ordering::Relaxed);
            self.give_back(slots, old, end.saturating_sub(old));
        }
    }

    /// Returns the first slot and the length of a free run of at least `count` slots.
    fn find<T: RunSlot>(&self, slots: &[T], count: u32) -> Option<(u32, u32)> {
        let own = list_of(count);
        // Every run of a list above is long enough.
        let fits = |base| free_at(slots, base).map(|slot| (base, slot.free_run().length));
        if count < EXACT || list_of(count.wrapping_sub(1)) != own {
            return fits(self.first_from(own)?);
        }
        if let Some(base) = self.first_from(own.wrapping_add(1)) {
            return fits(base);
        }
        // Some runs of this list are long enough. Only a table without longer runs gets here.
        let mut base = self.heads.get(own as usize)?.load(Ordering::Relaxed);
        for _ in 0..self.end.load(Ordering::Relaxed) {
            let run = slots.get(base as usize)?.free_run();
            if run.length >= count {
                return Some((base, run.length));
            }
            base = run.next;
        }
        None
    }

    /// Returns the first run of the first list from `list` on that is not empty.
    fn first_from(&self, list: u32) -> Option<u32> {
        let start = list as usize / u32::BITS as usize;
        // The lists of the first word that come before `list`.
        let mut before = low_bits(list % u32::BITS);
        for (index, word) in self.filled.iter().enumerate().skip(start) {
            let filled = word.load(Ordering::Relaxed) & !before;
            if filled != 0 {
                let bit = filled.trailing_zeros() as usize;
                let list = index.wrapping_mul(u32::BITS as usize).wrapping_add(bit);
                return Some(self.heads.get(list)?.load(Ordering::Relaxed));
            }
            before = 0;
        }
        None
    }

    /// Makes a run of free slots the first one of its list.
    fn insert<T: RunSlot>(&self, slots: &[T], base: u32, length: u32) {
        let list = list_of(length);
        let (Some(head), Some(first)) = (self.heads.get(list as usize), slots.get(base as usize))
        else {
            return;
        };
        let next = head.load(Ordering::Relaxed);
        if let Some(last) = slots.get(base.wrapping_add(length).wrapping_sub(1) as usize) {
            last.set_free_run(FreeRun {
                length,
                ..FreeRun::default()
            });
        }
        first.set_free_run(FreeRun {
            next,
            previous: NO_RUN,
            length,
        });
        match slots.get(next as usize) {
            Some(second) => second.set_free_run(FreeRun {
                previous: base,
                ..second.free_run()
            }),
            None => self.mark(list, true),
        }
        head.store(base, Ordering::Relaxed);
    }

    /// Removes the free run that begins at `base` from its list.
    fn remove<T: RunSlot>(&self, slots: &[T], base: u32) {
        let Some(first) = slots.get(base as usize) else {
            return;
        };
        let run = first.free_run();
        let next = slots.get(run.next as usize);
        if let Some(next) = next {
            next.set_free_run(FreeRun {
                previous: run.previous,
                ..next.free_run()
            });
        }
        if let Some(previous) = slots.get(run.previous as usize) {
            previous.set_free_run(FreeRun {
                next: run.next,
                ..previous.free_run()
            });
            return;
        }
        let list = list_of(run.length);
        if let Some(head) = self.heads.get(list as usize) {
            head.store(run.next, Ordering::Relaxed);
        }
        if next.is_none() {
            self.mark(list, false);
        }
    }

    /// Records whether a list has a run.
    fn mark(&self, list: u32, filled: bool) {
        let Some(word) = self.filled.get((list / u32::BITS) as usize) else {
            return;
        };
        let bit = 1_u32.wrapping_shl(list % u32::BITS);
        let bits = word.load(Ordering::Relaxed);
        let bits = if filled { bits | bit } else { bits & !bit };
        word.store(bits, Ordering::Relaxed);
    }
}

/// Returns the slot at an index if it is free.
fn free_at<T: RunSlot>(slots: &[T], index: u32) -> Option<&T> {
    slots.get(index as usize).filter(|slot| slot.is_unowned())
}

/// Returns a word whose lowest `count` bits are set; `count` is below 32.
const fn low_bits(count: u32) -> u32 {
    1_u32.wrapping_shl(count).wrapping_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;
    use std::eprintln;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// Returns `most`, or less in Miri, whose time for a reference to slots grows with their
    /// number.
    const fn within(most: usize, in_miri: usize) -> usize {
        if cfg!(miri) { in_miri } else { most }
    }

    fn seeded(test: &str) -> fastrand::Rng {
        let seed = std::env::var("DAT_RUNS_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| fastrand::u64(..));
        eprintln!("{test}: DAT_RUNS_SEED={seed}");
        fastrand::Rng::with_seed(seed)
    }

    /// A slot of a test; its words are not free while it is used.
    #[derive(Debug)]
    struct Slot {
        used: AtomicU32,
        words: [AtomicU32; 3],
    }

    impl Slot {
        const fn new() -> Self {
            Self {
                used: AtomicU32::new(0),
                words: [const { AtomicU32::new(0) }; 3],
            }
        }

        /// Marks the slot; the queue that uses it writes into all words.
        fn use_it(&self) {
            assert_eq!(self.used.swap(1, Ordering::Relaxed), 0, "taken twice");
            for word in &self.words {
                word.store(0x5A5A_5A5A, Ordering::Relaxed);
            }
        }
    }

    impl RunSlot for Slot {
        fn is_unowned(&self) -> bool {
            self.used.load(Ordering::Relaxed) == 0
        }

        fn free_run(&self) -> FreeRun {
            assert!(self.is_unowned(), "a used slot has no words");
            let [next, previous, length] =
                self.words.each_ref().map(|it| it.load(Ordering::Relaxed));
            FreeRun {
                next,
                previous,
                length,
            }
        }

        fn set_free_run(&self, run: FreeRun) {
            assert!(self.is_unowned(), "a used slot has no words");
            let values = [run.next, run.previous, run.length];
            for (word, value) in self.words.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// An allocator with its slots, which are checked after each call.
    struct Checked {
        runs: FreeRuns,
        slots: Vec<Slot>,
    }

    impl Checked {
        fn new(end: usize) -> Self {
            let mut table = Self {
                runs: FreeRuns::new(),
                slots: Vec::new(),
            };
            table.grow(end);
            table
        }

        fn grow(&mut self, end: usize) {
            let end = end.max(self.slots.len());
            self.slots.resize_with(end, Slot::new);
            self.runs.grow(&self.slots, end as u32);
        }

        fn take(&self, count: usize) -> Option<usize> {
            let base = self.runs.take(&self.slots, count as u32)? as usize;
            for slot in &self.slots[base..base + count] {
                slot.use_it();
            }
            Some(base)
        }

        fn give_back(&self, base: usize, count: usize) {
            for slot in &self.slots[base..base + count] {
                assert_eq!(slot.used.swap(0, Ordering::Relaxed), 1, "not taken");
            }
            self.runs.give_back(&self.slots, base as u32, count as u32);
        }

        fn needed(&self, count: usize) -> Option<u32> {
            self.runs.needed(&self.slots, count as u32)
        }

        /// Returns base and length of each longest sequence of free slots.
        fn free(&self) -> BTreeMap<u32, u32> {
            let (mut free, mut first) = (BTreeMap::new(), None);
            for (index, slot) in (0..).zip(&self.slots) {
                if slot.is_unowned() {
                    *free.entry(*first.get_or_insert(index)).or_insert(0) += 1;
                } else {
                    first = None;
                }
            }
            free
        }

        fn longest(&self) -> usize {
            self.free()
                .values()
                .max()
                .map_or(0, |length| *length as usize)
        }

        /// Compares the lists with the slots.
        fn check(&self) {
            let mut listed = BTreeMap::new();
            for (list, head) in self.runs.heads.iter().enumerate() {
                let mut base = head.load(Ordering::Relaxed);
                let bits = self.runs.filled[list / 32].load(Ordering::Relaxed);
                assert_eq!(bits >> (list % 32) & 1 != 0, base != NO_RUN, "list {list}");
                let mut previous = NO_RUN;
                while base != NO_RUN {
                    let run = self.slots[base as usize].free_run();
                    assert_eq!(run.previous, previous);
                    assert_eq!(list_of(run.length) as usize, list);
                    let last = &self.slots[(base + run.length - 1) as usize];
                    assert_eq!(last.free_run().length, run.length);
                    assert_eq!(listed.insert(base, run.length), None);
                    (previous, base) = (base, run.next);
                }
            }
            assert_eq!(listed, self.free());
        }
    }

    #[test]
    fn lists_are_in_the_order_of_lengths() {
        assert_eq!(list_of(SLOTS_MAX) as usize, LISTS - PARTS as usize);
        assert_eq!(list_of(u32::MAX) as usize, LISTS - 1);
        for length in 0..10_000 {
            let step = list_of(length + 1) - list_of(length);
            assert!(step == 1 || step == 0 && length >= EXACT, "{length}");
        }
        let parts = [8, 9, 10, 11, 12, 13, 14, 15, 16].map(list_of);
        assert_eq!(parts, [8, 8, 9, 9, 10, 10, 11, 11, 12]);
    }

    #[test]
    fn table_without_slots_has_no_run() {
        let table = Checked::new(0);
        assert_eq!((table.take(1), table.needed(1)), (None, Some(1)));
        assert_eq!((table.take(0), table.needed(7)), (Some(0), Some(7)));
    }

    #[test]
    fn table_of_any_length_is_used_in_full() {
        let ends = [1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 999, 1_000, 1_024, 1_025];
        for end in ends.into_iter().take(within(14, 9)) {
            let table = Checked::new(end);
            assert_eq!(table.take(end + 1), None);
            assert_eq!(table.take(end), Some(0));
            assert_eq!(table.take(1), None);
            table.give_back(0, end);
            table.check();
            for slot in 0..end {
                assert_eq!(table.take(1), Some(slot));
                table.check();
            }
            assert_eq!(table.take(1), None);
        }
    }

    /// A run is found although shorter ones of the same list come before it.
    #[test]
    fn long_run_of_a_list_is_found() {
        for count in 9..=within(200, 12) {
            let table = Checked::new(count * 4 + 3);
            assert_eq!(table.take(count * 4 + 3), Some(0));
            table.give_back(0, count);
            for short in 1..=3 {
                table.give_back(count * short + short, count - 1);
            }
            table.check();
            assert_eq!(table.take(count), Some(0), "{count}");
            assert_eq!(table.take(count), None, "{count}");
            assert!(table.take(count - 1).is_some());
        }
    }

    #[test]
    fn parts_of_a_run_are_given_back_in_any_order() {
        let mut random = seeded("parts_of_a_run_are_given_back_in_any_order");
        let length = within(300, 31);
        let counts = [1, 2, 3, 31, 64, 77, 300];
        for count in counts.into_iter().filter(|count| *count <= length) {
            let table = Checked::new(length);
            assert_eq!(table.take(count), Some(0));
            let mut slots: Vec<usize> = (0..count).collect();
            random.shuffle(&mut slots);
            for slot in slots {
                table.give_back(slot, 1);
                table.check();
            }
            assert_eq!(table.take(length), Some(0));
        }
    }

    #[test]
    fn certain_run_is_taken_from_any_part_of_a_free_run() {
        for (base, count) in [(0, 10), (0, 4), (3, 4), (6, 4), (9, 1)] {
            for (before, after) in [(0, 0), (1, 0), (0, 1), (2, 3)] {
                let end = before + 10 + after;
                let table = Checked::new(end);
                assert_eq!(table.take(end), Some(0));
                table.give_back(before, 10);
                table
                    .runs
                    .take_at(&table.slots, (before + base) as u32, count as u32);
                for slot in &table.slots[before + base..before + base + count] {
                    slot.use_it();
                }
                table.check();
            }
        }
    }

    #[test]
    fn slots_beyond_the_end_are_not_given_back() {
        let table = Checked::new(100);
        assert_eq!(table.take(100), Some(0));
        for (base, count) in [(100, 1), (99, 2), (u32::MAX, u32::MAX), (0, 101), (3, 0)] {
            table.runs.give_back(&table.slots, base, count);
            table.check();
        }
        assert_eq!(table.take(1), None);
    }

    #[test]
    fn growth_is_minimal_and_free() {
        let mut table = Checked::new(0);
        let counts = [5, 40, 1, 300, 32, 64, 7, 1_000];
        let most = within(1_000, 40);
        for count in counts.into_iter().filter(|count| *count <= most) {
            assert_eq!(table.take(count), None);
            let end = table.slots.len();
            assert_eq!(table.needed(count), Some((end + count) as u32));
            table.grow(end + count);
            table.check();
            assert_eq!(table.take(count), Some(end));
            table.check();
        }
        let end = table.slots.len();
        table.give_back(end - 10, 10);
        assert_eq!(table.take(25), None);
        assert_eq!(table.needed(25), Some(end as u32 + 15));
        table.grow(end + 15);
        table.check();
        assert_eq!(table.take(25), Some(end - 10));
        table.grow(10);
        assert_eq!(table.slots.len(), end + 15);
    }

    #[test]
    fn table_beyond_the_maximum_is_refused() {
        let runs = FreeRuns::new();
        let slots: [Slot; 0] = [];
        assert_eq!(runs.needed(&slots, SLOTS_MAX), Some(SLOTS_MAX));
        assert_eq!(runs.needed(&slots, SLOTS_MAX + 1), None);
        assert_eq!(runs.needed(&slots, u32::MAX), None);
        runs.end.store(SLOTS_MAX, Ordering::Relaxed);
        assert_eq!(runs.needed(&slots, 1), None);
        assert_eq!(runs.needed(&slots, u32::MAX), None);
    }

    /// Calls at random agree with the slots: no slot is lost or shared, and growth is minimal.
    #[test]
    fn random_calls_agree_with_the_slots() {
        let mut random = seeded("random_calls_agree_with_the_slots");
        let (mut grown, mut refused) = (0, 0);
        for (tables, steps, limit) in [(60, 150, 100), (15, 200, 400), (1, 200, 3_000)] {
            let (tables, steps, limit) = (within(tables, 2), within(steps, 40), within(limit, 60));
            for _ in 0..tables {
                let mut table = Checked::new(random.usize(0..limit));
                let mut taken = vec![];
                let longest = random.usize(1..=limit / 2);
                for _ in 0..steps {
                    if taken.is_empty() || random.bool() {
                        let count = random.usize(1..=longest);
                        let fits = table.longest() >= count;
                        let mut base = table.take(count);
                        assert_eq!(base.is_some(), fits);
                        let needed = table.needed(count).expect("a small table") as usize;
                        if base.is_none() && needed <= limit {
                            table.grow(needed);
                            base = table.take(count);
                            assert_eq!(base, Some(needed - count));
                            grown += 1;
                        }
                        match base {
                            Some(base) => taken.push((base, count)),
                            None => refused += 1,
                        }
                    } else {
                        let run = random.usize(0..taken.len());
                        let (base, count) = taken.swap_remove(run);
                        let first = random.usize(0..=count);
                        let stop = random.usize(first..=count);
                        table.give_back(base + first, stop - first);
                        let rest = [(base, first), (base + stop, count - stop)];
                        taken.extend(rest.into_iter().filter(|(_, count)| *count != 0));
                    }
                    table.check();
                    let used: usize = taken.iter().map(|(_, count)| count).sum();
                    let free: u32 = table.free().values().sum();
                    assert_eq!(used + free as usize, table.slots.len());
                }
                random.shuffle(&mut taken);
                for (base, count) in taken {
                    table.give_back(base, count);
                    table.check();
                }
                assert_eq!(table.take(table.slots.len()), Some(0));
            }
        }
        let is_enough = grown > 100 && refused > 100;
        assert!(is_enough || cfg!(miri), "{grown} {refused}");
    }

    /// A call uses few slots, however many runs are free.
    #[test]
    fn cost_is_constant() {
        use std::cell::Cell;
        std::thread_local! {
            static USES: Cell<u32> = const { Cell::new(0) };
        }
        struct Counted(Slot);
        impl RunSlot for Counted {
            fn is_unowned(&self) -> bool {
                self.0.is_unowned()
            }
            fn free_run(&self) -> FreeRun {
                USES.set(USES.get() + 1);
                self.0.free_run()
            }
            fn set_free_run(&self, run: FreeRun) {
                USES.set(USES.get() + 1);
                self.0.set_free_run(run);
            }
        }
        const SLOTS: u32 = within(100_000, 200) as u32;
        let slots: Vec<Counted> = (0..SLOTS).map(|_| Counted(Slot::new())).collect();
        let runs = FreeRuns::new();
        runs.grow(&slots, SLOTS);
        let mark = |base: u32, count: u32, used| {
            for slot in &slots[base as usize..(base + count) as usize] {
                slot.0.used.store(used, Ordering::Relaxed);
            }
        };
        let mut random = seeded("cost_is_constant");
        let mut taken = Vec::new();
        let most = |call: &mut dyn FnMut()| {
            USES.set(0);
            call();
            assert!(USES.get() <= 16, "{}", USES.get());
        };
        for step in 0..within(20_000, 100) {
            if step % 3 != 2 || taken.is_empty() {
                let count = random.u32(1..=EXACT);
                most(&mut || {
                    if let Some(base) = runs.take(&slots, count) {
                        mark(base, count, 1);
                        taken.push((base, count));
                    }
                });
            } else {
                let (base, count) = taken.swap_remove(random.usize(0..taken.len()));
                mark(base, count, 0);
                most(&mut || runs.give_back(&slots, base, count));
            }
        }
        assert!(taken.len() > within(1_000, 10));
    }
}
