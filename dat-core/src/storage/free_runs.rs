//! Allocator of runs: consecutive slots of a table that grows at its end.
//!
//! A binary tree of aligned blocks. A node stores three lengths of its block: of the free run at
//! its start, of the one at its end, and of its longest one. A call descends from the root, so its
//! cost is logarithmic in the length of the table. FreeRuns are exact and begin at any slot. The first
//! run that fits is taken. No slot is lost to alignment.
//!
//! Groups of 32 slots are the leaves. One word has a bit for each slot of a group, which is set if
//! the slot is free. The node of a larger block is stored with the group at the middle of the
//! block. If the table ends at or before the middle, the block has no node: its first half has the
//! same slots. So growth moves no node.
//!
//! If a call makes a whole block free or taken, it stores the node of the block and marks it as
//! stale below. Nodes and bits below are not read before a call that changes a part of the block
//! has stored them.
//!
//! All calls for one table are made under one lock, so relaxed accesses suffice.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Word of an allocator of runs; lend as many as the table has slots.
///
/// A long table uses 5 words for 32 slots.
#[derive(Debug)]
pub struct RunWord(AtomicU32);

impl RunWord {
    /// A word that no allocator uses.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self(AtomicU32::new(0));

    fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Largest number of slots.
pub(crate) const SLOTS_MAX: u32 = 1 << 31;

/// Binary logarithm of the slots of a group.
const GROUP_ORDER: u32 = 5;
const GROUP_SIZE: u32 = 1 << GROUP_ORDER;
/// Words of a node: lengths of the prefix, of the suffix and of the longest run, and the mark.
const NODE_WORDS: u32 = 4;
/// Words for each group: those of the node of the block that it is in the middle of, and its bits.
///
/// The first group is in no middle, so the bits come last and those of the first are at index 0.
const GROUP_WORDS: u32 = NODE_WORDS + 1;

type Node = [RunWord; NODE_WORDS as usize];

/// State of an allocator; its words are an argument of each call.
///
/// The words are a slice of at least [`FreeRuns::words`] words. It may grow, but its contents stay.
#[derive(Debug)]
pub(crate) struct FreeRuns {
    /// Length of the table.
    end: AtomicU32,
}

impl FreeRuns {
    /// Creates an allocator without slots.
    pub(crate) const fn new() -> Self {
        Self {
            end: AtomicU32::new(0),
        }
    }

    /// Returns the number of words for a table of `end` slots, which is at most `end`.
    pub(crate) const fn words(end: u32) -> u32 {
        match end.checked_sub(1) {
            Some(last) => (last >> GROUP_ORDER)
                .wrapping_mul(GROUP_WORDS)
                .wrapping_add(1),
            None => 0,
        }
    }

    /// Returns the length of the table.
    pub(crate) fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    /// Takes the first free run of `count` slots; returns its first slot.
    ///
    /// Returns `None` only if there is no such run. The caller can then grow the table to
    /// [`FreeRuns::needed`]. A run of 0 slots has base 0.
    pub(crate) fn take(&self, words: &[RunWord], count: u32) -> Option<u32> {
        if count == 0 {
            return Some(0);
        }
        let base = Tree { words }.find(self.table(), count)?;
        self.take_at(words, base, count);
        Some(base)
    }

    /// Takes the run of `count` slots from `base`, which the caller knows to be free.
    ///
    /// Has no effect on slots beyond the end or on slots that are taken.
    pub(crate) fn take_at(&self, words: &[RunWord], base: u32, count: u32) {
        self.assign(words, base, base.saturating_add(count), false);
    }

    /// Gives back the run of `count` slots from `base`, which may be a part of one that was taken.
    ///
    /// Has no effect on slots beyond the end or on slots that are free.
    pub(crate) fn give_back(&self, words: &[RunWord], base: u32, count: u32) {
        self.assign(words, base, base.saturating_add(count), true);
    }

    /// Returns the smallest length of the table for which `take` succeeds.
    ///
    /// The free slots at the end count. Returns `None` if the length exceeds [`SLOTS_MAX`].
    pub(crate) fn needed(&self, words: &[RunWord], count: u32) -> Option<u32> {
        let all = Tree { words }.summary(self.table());
        if count <= all.longest {
            return Some(all.size);
        }
        let kept = all.size.saturating_sub(all.suffix);
        kept.checked_add(count).filter(|end| *end <= SLOTS_MAX)
    }

    /// Grows the table to `end` slots, of which the new ones are free.
    ///
    /// The words that the new slots add must be empty. Returns false, without effect, if there are
    /// too few words or `end` exceeds [`SLOTS_MAX`]. A table that is as long already stays.
    #[must_use]
    pub(crate) fn grow(&self, words: &[RunWord], end: u32) -> bool {
        let old = self.end();
        if end > SLOTS_MAX || words.len() < Self::words(end) as usize {
            return false;
        }
        if end > old {
            // The call stores anew all nodes whose blocks get longer. If such a block is stale
            // below, its new slots first become like its old ones, and then free.
            self.end.store(end, Ordering::Relaxed);
            self.assign(words, old, end, true);
        }
        true
    }

    /// Makes the slots from `first` to before `stop` free or taken.
    fn assign(&self, words: &[RunWord], first: u32, stop: u32, free: bool) {
        let stop = stop.min(self.end());
        if first < stop {
            Tree { words }.assign(self.table(), Span { first, stop }, free);
        }
    }

    fn table(&self) -> Block {
        Block {
            base: 0,
            size: self.end(),
        }
    }
}

/// Slots from `first` to before `stop`, which is at most the length of the table.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    stop: u32,
}

/// Slots of an aligned block before the end of the table.
///
/// The length of the block is the power of two from `size`, and `base` is a multiple of it.
#[derive(Clone, Copy, Debug)]
struct Block {
    base: u32,
    size: u32,
}

impl Block {
    /// Returns true if the slots are of one group.
    const fn is_group(self) -> bool {
        self.size <= GROUP_SIZE
    }

    /// Returns the halves of a block that is larger than a group.
    ///
    /// The first one is as long as the largest power of two below the size.
    const fn halves(self) -> (Self, Self) {
        let last = self.size.wrapping_sub(1);
        let half = SLOTS_MAX.wrapping_shr(last.leading_zeros());
        let left = Self {
            base: self.base,
            size: half,
        };
        let right = Self {
            base: self.base.wrapping_add(half),
            size: self.size.wrapping_sub(half),
        };
        (left, right)
    }
}

/// Lengths of the free runs of a block that matter to larger blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summary {
    /// Slots of the block.
    size: u32,
    /// Free slots at the start.
    prefix: u32,
    /// Free slots at the end.
    suffix: u32,
    longest: u32,
}

impl Summary {
    /// Describes a block that is free or taken as a whole.
    const fn uniform(size: u32, free: bool) -> Self {
        let length = if free { size } else { 0 };
        Self {
            size,
            prefix: length,
            suffix: length,
            longest: length,
        }
    }

    /// Describes a group of `size` slots.
    const fn of_group(bits: u32, size: u32) -> Self {
        if bits == low_bits(size) {
            return Self::uniform(size, true);
        }
        let mut longest = 0_u32;
        let mut runs = bits;
        // Each step shortens each run of bits by one, so there are at most 32.
        while runs != 0 {
            runs &= runs << 1;
            longest = longest.wrapping_add(1);
        }
        let unused = GROUP_SIZE.wrapping_sub(size);
        Self {
            size,
            prefix: bits.trailing_ones(),
            suffix: bits.unbounded_shl(unused).leading_ones(),
            longest,
        }
    }

    /// Describes a block by its halves.
    fn join(self, right: Self) -> Self {
        let across = self.suffix.saturating_add(right.prefix);
        Self {
            size: self.size.saturating_add(right.size),
            prefix: if self.prefix == self.size {
                self.size.saturating_add(right.prefix)
            } else {
                self.prefix
            },
            suffix: if right.suffix == right.size {
                self.suffix.saturating_add(right.size)
            } else {
                right.suffix
            },
            longest: self.longest.max(right.longest).max(across),
        }
    }

    /// Stores the lengths in a node.
    fn store(self, node: &Node) {
        let [prefix, suffix, longest, _] = node;
        prefix.store(self.prefix);
        suffix.store(self.suffix);
        longest.store(self.longest);
    }
}

/// Returns a word whose lowest `count` bits are set; all of them from 32 on.
const fn low_bits(count: u32) -> u32 {
    u32::MAX.unbounded_shr(GROUP_SIZE.saturating_sub(count))
}

/// Returns the position of the first `count` consecutive bits.
fn find_bits(bits: u32, count: u32) -> Option<u32> {
    // A bit of `starts` begins a run of at least `length` bits.
    let mut starts = bits;
    let mut length = 1_u32;
    while length < count {
        // The length doubles, except in the last step.
        let step = length.min(count.saturating_sub(length));
        starts &= starts.unbounded_shr(step);
        length = length.saturating_add(step);
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// Words of an allocator.
///
/// A word that is missing reads as 0: its slots are taken.
#[derive(Clone, Copy)]
struct Tree<'w> {
    words: &'w [RunWord],
}

impl Tree<'_> {
    /// Returns the word that has the bits of a group.
    fn bits(&self, group: Block) -> Option<&RunWord> {
        let index = (group.base >> GROUP_ORDER).wrapping_mul(GROUP_WORDS) as usize;
        #[cfg(test)]
        tests::trace(index);
        self.words.get(index)
    }

    /// Returns the node of a block that is larger than a group.
    fn node(&self, block: Block) -> Option<&Node> {
        let (_, right) = block.halves();
        let group = right.base >> GROUP_ORDER;
        let index = group.wrapping_mul(GROUP_WORDS).wrapping_sub(NODE_WORDS) as usize;
        #[cfg(test)]
        tests::trace(index);
        self.words.get(index..)?.first_chunk()
    }

    /// Returns the summary of a block.
    fn summary(&self, block: Block) -> Summary {
        let size = block.size;
        if block.is_group() {
            let bits = self.bits(block).map_or(0, RunWord::load);
            return Summary::of_group(bits, size);
        }
        let Some([prefix, suffix, longest, _]) = self.node(block) else {
            return Summary::uniform(size, false);
        };
        Summary {
            size,
            prefix: prefix.load(),
            suffix: suffix.load(),
            longest: longest.load(),
        }
    }

    /// Returns the first slot of the first free run of `count` slots in a block.
    fn find(&self, block: Block, count: u32) -> Option<u32> {
        let mut block = block;
        let mut summary = self.summary(block);
        if summary.longest < count {
            return None;
        }
        // Each step halves the block. It does not go below a stale node, because its free slots
        // begin at its start.
        while summary.prefix < count && !block.is_group() {
            let (left, right) = block.halves();
            let first = self.summary(left);
            if first.longest >= count {
                (block, summary) = (left, first);
                continue;
            }
            let second = self.summary(right);
            if first.suffix.saturating_add(second.prefix) >= count {
                return right.base.checked_sub(first.suffix);
            }
            (block, summary) = (right, second);
        }
        if summary.prefix >= count {
            return Some(block.base);
        }
        let position = find_bits(self.bits(block)?.load(), count)?;
        block.base.checked_add(position)
    }

    /// Makes the slots of a span free or taken, as far as they are in a block.
    ///
    /// At least one of them is. Returns the new summary of the block. Calls itself for the halves
    /// of at most two blocks of each length, so at most 26 calls are nested.
    fn assign(&self, block: Block, span: Span, free: bool) -> Summary {
        let stop = block.base.saturating_add(block.size);
        if span.first <= block.base && span.stop >= stop {
            return self.fill(block, free);
        }
        if block.is_group() {
            return self.assign_bits(block, span, free);
        }
        let Some(node) = self.node(block) else {
            return Summary::uniform(block.size, false);
        };
        self.push_down(block, node);
        let (left, right) = block.halves();
        let first = if span.first < right.base {
            self.assign(left, span, free)
        } else {
            self.summary(left)
        };
        let second = if span.stop > right.base {
            self.assign(right, span, free)
        } else {
            self.summary(right)
        };
        let summary = first.join(second);
        summary.store(node);
        summary
    }

    /// Makes the slots of a span free or taken, as far as they are in a group.
    fn assign_bits(&self, group: Block, span: Span, free: bool) -> Summary {
        let before = low_bits(span.first.saturating_sub(group.base));
        let until = low_bits(span.stop.saturating_sub(group.base));
        let mask = until & !before;
        let Some(word) = self.bits(group) else {
            return Summary::uniform(group.size, false);
        };
        let old = word.load();
        let bits = if free { old | mask } else { old & !mask };
        word.store(bits);
        Summary::of_group(bits, group.size)
    }

    /// Makes a block free or taken as a whole; returns its new summary.
    fn fill(&self, block: Block, free: bool) -> Summary {
        let summary = Summary::uniform(block.size, free);
        if block.is_group() {
            if let Some(word) = self.bits(block) {
                word.store(low_bits(summary.prefix));
            }
        } else if let Some(node) = self.node(block) {
            summary.store(node);
            let [.., stale] = node;
            stale.store(1);
        }
        summary
    }

    /// Stores the halves of a block that is stale below.
    fn push_down(&self, block: Block, node: &Node) {
        let [.., longest, stale] = node;
        if stale.load() != 0 {
            let free = longest.load() != 0;
            let (left, right) = block.halves();
            self.fill(left, free);
            self.fill(right, free);
            stale.store(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::eprintln;
    use std::vec::Vec;

    use super::*;

    std::thread_local! {
        /// Indices of the accessed words while a test traces.
        static TRACED: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
    }

    pub(super) fn trace(index: usize) {
        TRACED.with_borrow_mut(|traced| {
            if let Some(indices) = traced {
                indices.push(index);
            }
        });
    }

    /// FreeRuns a call and returns its word accesses.
    fn traced(call: impl FnOnce()) -> Vec<usize> {
        TRACED.set(Some(Vec::new()));
        call();
        TRACED.take().unwrap()
    }

    /// Allocator with as few words as its table needs, and a bitmap that does the same.
    struct Checked {
        runs: FreeRuns,
        words: Vec<RunWord>,
        free: Vec<bool>,
    }

    impl Checked {
        fn new(end: usize) -> Self {
            let mut checked = Self {
                runs: FreeRuns::new(),
                words: Vec::new(),
                free: Vec::new(),
            };
            checked.grow(end);
            checked
        }

        fn grow(&mut self, end: usize) {
            let needed = FreeRuns::words(end as u32) as usize;
            if end > self.free.len() {
                self.words.resize_with(needed, || RunWord::EMPTY);
                self.free.resize(end, true);
            }
            assert!(self.runs.grow(&self.words, end as u32));
            assert_eq!(self.runs.end() as usize, self.free.len());
        }

        /// Takes the run that the bitmap finds, or none if it finds none.
        fn take(&mut self, count: usize) -> Option<u32> {
            let expected = first_fit(&self.free, count);
            let base = self.runs.take(&self.words, count as u32);
            assert_eq!(base, expected.map(|base| base as u32), "take {count}");
            if let Some(base) = expected {
                self.free[base..base + count].fill(false);
            }
            base
        }

        fn take_at(&mut self, base: usize, count: usize) {
            self.runs.take_at(&self.words, base as u32, count as u32);
            self.mark(base, count, false);
        }

        fn give_back(&mut self, base: usize, count: usize) {
            self.runs.give_back(&self.words, base as u32, count as u32);
            self.mark(base, count, true);
        }

        fn mark(&mut self, base: usize, count: usize, free: bool) {
            let slots = self.free.iter_mut().skip(base).take(count);
            slots.for_each(|slot| *slot = free);
        }

        /// Returns the smallest length for which the bitmap has a run.
        fn needed(&self, count: usize) -> usize {
            let needed = self.runs.needed(&self.words, count as u32);
            let mut grown = self.free.clone();
            grown.resize(self.free.len() + count, true);
            let base = first_fit(&grown, count).unwrap();
            let expected = self.free.len().max(base + count);
            assert_eq!(needed, Some(expected as u32), "needed for {count}");
            expected
        }

        /// Compares each block that is not below a stale node with the bitmap.
        fn check(&self) {
            self.check_block(self.runs.table());
        }

        fn check_block(&self, block: Block) {
            let tree = Tree { words: &self.words };
            let base = block.base as usize;
            let slots = &self.free[base..base + block.size as usize];
            assert_eq!(tree.summary(block), summarise(slots), "{block:?}");
            if block.is_group() {
                let bits = tree.bits(block).map_or(0, RunWord::load);
                let expected = slots
                    .iter()
                    .rev()
                    .fold(0, |bits, free| bits << 1 | u32::from(*free));
                assert_eq!(bits, expected, "{block:?}");
            } else if tree.node(block).unwrap()[3].load() == 0 {
                let (left, right) = block.halves();
                assert!(left.size.is_power_of_two() && right.base.is_multiple_of(left.size));
                self.check_block(left);
                self.check_block(right);
            } else {
                assert!(slots.iter().all(|free| *free == slots[0]), "{block:?}");
            }
        }
    }

    /// Returns the first slot of the first free run.
    fn first_fit(free: &[bool], count: usize) -> Option<usize> {
        let mut found = 0;
        if count == 0 {
            return Some(0);
        }
        for (index, free) in free.iter().enumerate() {
            found = if *free { found + 1 } else { 0 };
            if found == count {
                return Some(index + 1 - count);
            }
        }
        None
    }

    fn summarise(free: &[bool]) -> Summary {
        let runs = || free.split(|free| !free).map(|run| run.len() as u32);
        Summary {
            size: free.len() as u32,
            prefix: runs().next().unwrap_or(0),
            suffix: runs().next_back().unwrap_or(0),
            longest: runs().max().unwrap_or(0),
        }
    }

    fn seeded(test: &str) -> fastrand::Rng {
        let seed = std::env::var("DAT_RUNS_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| fastrand::u64(..));
        eprintln!("{test}: DAT_RUNS_SEED={seed}");
        fastrand::Rng::with_seed(seed)
    }

    #[test]
    fn table_without_slots_has_no_run() {
        let runs = FreeRuns::new();
        assert_eq!(FreeRuns::words(0), 0);
        assert_eq!(runs.take(&[], 1), None);
        assert_eq!(runs.needed(&[], 7), Some(7));
        runs.give_back(&[], 0, 5);
        runs.take_at(&[], 3, u32::MAX);
        assert_eq!(runs.take(&[], 1), None);
        assert!(runs.grow(&[], 0));
        assert!(!runs.grow(&[], 1));
        assert_eq!(runs.end(), 0);
    }

    #[test]
    fn run_of_no_slots_has_no_effect() {
        for end in [0, 1, 33] {
            let mut table = Checked::new(end);
            assert_eq!(table.take(0), Some(0));
            table.give_back(0, 0);
            table.take_at(0, 0);
            assert_eq!(table.needed(0), end);
            table.check();
            assert_eq!(table.take(end), Some(0));
            assert_eq!(table.take(0), Some(0));
            table.give_back(0, 0);
            table.check();
        }
    }

    #[test]
    fn table_of_any_length_is_used_in_full() {
        for end in [1, 31, 32, 33, 63, 64, 65, 96, 97, 999, 1_000, 1_024, 1_025] {
            let mut table = Checked::new(end);
            assert_eq!(table.take(end + 1), None);
            assert_eq!(table.take(end), Some(0));
            table.check();
            assert_eq!(table.take(1), None);
            table.give_back(0, end);
            table.check();
            for slot in 0..end {
                assert_eq!(table.take(1), Some(slot as u32));
            }
            assert_eq!(table.take(1), None);
            table.check();
        }
    }

    /// No slot is lost to alignment: any runs that are as long as the table fit.
    #[test]
    fn runs_as_long_together_as_the_table_fit() {
        let mut table = Checked::new(72);
        assert_eq!([0; 3].map(|_| table.take(24)), [0, 24, 48].map(Some));
        let mut random = seeded("runs_as_long_together_as_the_table_fit");
        for _ in 0..200 {
            let lengths: Vec<usize> = (0..random.usize(1..20))
                .map(|_| random.usize(1..90))
                .collect();
            let mut table = Checked::new(lengths.iter().sum());
            assert!(lengths.iter().all(|length| table.take(*length).is_some()));
            assert_eq!(table.take(1), None);
        }
    }

    #[test]
    fn parts_of_a_run_are_given_back_in_any_order() {
        let mut random = seeded("parts_of_a_run_are_given_back_in_any_order");
        for count in [1, 2, 31, 64, 77, 300] {
            let mut table = Checked::new(300);
            assert_eq!(table.take(count), Some(0));
            let mut slots: Vec<usize> = (0..count).collect();
            random.shuffle(&mut slots);
            for slot in slots {
                table.give_back(slot, 1);
                table.check();
            }
            assert_eq!(table.take(300), Some(0));
        }
    }

    #[test]
    fn slots_that_are_free_or_beyond_the_end_are_not_given_back() {
        let mut table = Checked::new(100);
        assert_eq!(table.take(40), Some(0));
        table.give_back(30, 20);
        table.give_back(30, 20);
        table.give_back(35, 1);
        table.give_back(90, u32::MAX as usize);
        table.give_back(100, 1);
        table.give_back(u32::MAX as usize, u32::MAX as usize);
        table.check();
        assert_eq!(table.take(71), None);
        assert_eq!(table.take(70), Some(30));
        assert_eq!(table.take(1), None);
    }

    #[test]
    fn given_run_is_taken_again_where_it_was() {
        let mut table = Checked::new(200);
        assert_eq!(table.take(50), Some(0));
        assert_eq!(table.take(60), Some(50));
        table.give_back(0, 50);
        assert_eq!(table.take(140), None);
        table.take_at(0, 50);
        table.check();
        assert_eq!(table.take(90), Some(110));
        table.take_at(190, u32::MAX as usize);
        table.check();
    }

    #[test]
    fn growth_is_minimal_and_free() {
        let mut table = Checked::new(0);
        for count in [5, 40, 1, 300, 32, 64, 7, 1_000] {
            assert_eq!(table.take(count), None);
            let end = table.free.len();
            let needed = table.needed(count);
            assert_eq!(needed, end + count);
            table.grow(needed);
            table.check();
            assert_eq!(table.take(count), Some(end as u32));
            table.check();
        }
        let end = table.free.len();
        table.give_back(end - 10, 10);
        assert_eq!(table.needed(25), end + 15);
        table.give_back(5, 40);
        assert_eq!(table.needed(25), end);
    }

    /// Every growth from a table that is free, taken or half taken keeps the slots.
    #[test]
    fn growth_by_any_length_keeps_the_slots() {
        for old in 0..=70 {
            for end in old..=140 {
                for taken in [0, old / 2, old] {
                    let mut table = Checked::new(old);
                    table.take_at(old - taken, taken);
                    table.grow(end);
                    table.check();
                }
            }
        }
    }

    #[test]
    fn growth_is_refused_without_words_for_it() {
        let words = [const { RunWord::EMPTY }; 6];
        let runs = FreeRuns::new();
        assert!(!runs.grow(&words, 65));
        assert_eq!(runs.end(), 0);
        assert!(runs.grow(&words, 40));
        assert!(!runs.grow(&words, 65));
        assert!(!runs.grow(&words, SLOTS_MAX + 1));
        assert!(!runs.grow(&words, u32::MAX));
        assert!(runs.grow(&words, 10));
        assert_eq!(runs.end(), 40);
        assert_eq!(runs.take(&words, 40), Some(0));
    }

    #[test]
    fn number_of_words_is_at_most_that_of_slots() {
        let expected = [
            (0, 0),
            (1, 1),
            (32, 1),
            (33, 6),
            (64, 6),
            (65, 11),
            (1_000, 156),
        ];
        for (slots, words) in expected {
            assert_eq!(FreeRuns::words(slots), words);
        }
        assert!(
            (0..10_000)
                .chain([SLOTS_MAX])
                .all(|end| FreeRuns::words(end) <= end)
        );
    }

    /// The largest table overflows no number. Its words are missing, so it has no free slot.
    #[test]
    fn largest_table_overflows_no_number() {
        let runs = FreeRuns::new();
        assert_eq!(runs.needed(&[], SLOTS_MAX), Some(SLOTS_MAX));
        assert_eq!(runs.needed(&[], SLOTS_MAX + 1), None);
        assert_eq!(runs.needed(&[], u32::MAX), None);
        for end in [SLOTS_MAX - 1, SLOTS_MAX] {
            runs.end.store(end, Ordering::Relaxed);
            let spans = [
                (0, end),
                (1, end),
                (0, end - 1),
                (end - 1, 1),
                (1 << 30, u32::MAX),
            ];
            for (base, count) in spans {
                runs.give_back(&[], base, count);
                runs.take_at(&[], base, count);
            }
            assert_eq!(runs.take(&[], 1), None);
            assert_eq!(
                runs.needed(&[], SLOTS_MAX - end),
                Some(end + (SLOTS_MAX - end))
            );
            assert_eq!(runs.needed(&[], SLOTS_MAX - end + 1), None);
        }
    }

    /// Each span of tables of up to five groups, in a free and in a taken table.
    #[test]
    fn each_span_of_small_tables_is_marked_exactly() {
        for end in [33, 70, 96, 100] {
            for free in [false, true] {
                for base in 0..end {
                    for count in 1..=end - base {
                        let mut table = Checked::new(end);
                        if free {
                            table.take_at(0, end);
                            table.give_back(base, count);
                        } else {
                            table.take_at(base, count);
                        }
                        table.check();
                    }
                }
            }
        }
    }

    /// Calls at random agree with a bitmap: first fit, minimal growth, no slot lost or shared.
    #[test]
    fn random_calls_agree_with_a_bitmap() {
        let mut random = seeded("random_calls_agree_with_a_bitmap");
        let mut grown = 0;
        let mut refused = 0;
        for (tables, steps, limit) in [(60, 150, 100), (15, 200, 400), (1, 200, 3_000)] {
            for _ in 0..tables {
                let mut case = Case::new(&mut random, limit);
                for _ in 0..steps {
                    case.step(&mut random);
                    case.check();
                }
                grown += case.grown;
                refused += case.refused;
                case.give_back_all(&mut random);
            }
        }
        assert!(grown > 100 && refused > 100, "{grown} {refused}");
    }

    /// A table of at most `limit` slots, with random runs.
    struct Case {
        table: Checked,
        limit: usize,
        longest: usize,
        taken: Vec<(usize, usize)>,
        grown: u32,
        refused: u32,
    }

    impl Case {
        fn new(random: &mut fastrand::Rng, limit: usize) -> Self {
            Self {
                table: Checked::new(random.usize(0..limit)),
                limit,
                longest: random.usize(1..=limit / 2),
                taken: Vec::new(),
                grown: 0,
                refused: 0,
            }
        }

        fn step(&mut self, random: &mut fastrand::Rng) {
            match random.u32(0..10) {
                0..5 => self.take(random.usize(1..=self.longest)),
                5..8 if !self.taken.is_empty() => self.give_back_part(random),
                8 if !self.taken.is_empty() => {
                    let (base, count) = self.taken[random.usize(0..self.taken.len())];
                    self.table.give_back(base, count);
                    self.table.check();
                    self.table.take_at(base, count);
                }
                9 if random.u8(0..4) == 0 => {
                    let end = self.table.free.len();
                    self.table.grow(random.usize(end..=self.limit));
                }
                _ => {}
            }
        }

        /// Takes a run, in a longer table if the limit allows it.
        fn take(&mut self, count: usize) {
            let needed = self.table.needed(count);
            let mut base = self.table.take(count);
            assert_eq!(base.is_some(), needed == self.table.free.len());
            if base.is_none() && needed <= self.limit {
                self.table.grow(needed);
                self.grown += 1;
                base = self.table.take(count);
                assert_eq!(base, Some((needed - count) as u32));
            }
            match base {
                Some(base) => self.taken.push((base as usize, count)),
                None => self.refused += 1,
            }
        }

        /// Gives back a part of a run, and sometimes all of it after that.
        fn give_back_part(&mut self, random: &mut fastrand::Rng) {
            let run = random.usize(0..self.taken.len());
            let (base, count) = self.taken.swap_remove(run);
            let first = random.usize(0..=count);
            let stop = random.usize(first..=count);
            self.table.give_back(base + first, stop - first);
            if random.bool() {
                self.table.give_back(base, count);
            } else {
                let rest = [(base, first), (base + stop, count - stop)];
                self.taken.extend(rest);
            }
        }

        /// Checks the tree, and that each slot is free or of one run.
        fn check(&self) {
            self.table.check();
            let taken: usize = self.taken.iter().map(|(_, count)| count).sum();
            let free = self.table.free.iter().filter(|free| **free).count();
            assert_eq!(taken + free, self.table.free.len());
        }

        /// Gives back all runs in a random order: the table is then one run.
        fn give_back_all(mut self, random: &mut fastrand::Rng) {
            random.shuffle(&mut self.taken);
            for (base, count) in self.taken {
                self.table.give_back(base, count);
                self.table.check();
            }
            let end = self.table.free.len();
            assert_eq!(self.table.take(end), Some(0));
        }
    }

    /// Numbers of accesses to nodes and groups.
    #[derive(Default)]
    struct Cost {
        calls: usize,
        /// Accesses of all calls.
        all: usize,
        /// Most accesses of a call.
        most: usize,
        /// Most different nodes and groups of a call.
        different: usize,
    }

    impl Cost {
        fn measure(&mut self, call: impl FnOnce()) {
            let indices = traced(call);
            self.calls += 1;
            self.all += indices.len();
            self.most = self.most.max(indices.len());
            let different: BTreeSet<usize> = indices.into_iter().collect();
            self.different = self.different.max(different.len());
        }
    }

    /// A call on about 2^20 slots accesses few nodes, although thousands of runs are taken.
    #[test]
    fn cost_is_logarithmic() {
        const LEVELS: usize = 20;
        const SLOTS: u32 = 1_000_000;
        let mut random = seeded("cost_is_logarithmic");
        let words: Box<[RunWord]> = (0..FreeRuns::words(SLOTS))
            .map(|_| RunWord::EMPTY)
            .collect();
        let runs = FreeRuns::new();
        let mut growth = Cost::default();
        growth.measure(|| assert!(runs.grow(&words, SLOTS)));
        // The table never begins with a free run, so a search descends.
        assert_eq!(runs.take(&words, 1), Some(0));
        let mut taken = Vec::new();
        for _ in 0..20_000 {
            let count = random.u32(1..200);
            let base = runs.take(&words, count);
            taken.extend(base.map(|base| (base, count)));
        }
        assert!(taken.len() > 5_000);
        random.shuffle(&mut taken);
        for (base, count) in taken.split_off(taken.len() / 2) {
            runs.give_back(&words, base, count);
        }
        let mut gives = Cost::default();
        let mut takes = Cost::default();
        for _ in 0..2_000 {
            let (base, count) = taken.swap_remove(random.usize(0..taken.len()));
            gives.measure(|| runs.give_back(&words, base, count));
            let count = random.u32(1..200);
            takes.measure(|| {
                let base = runs.take(&words, count);
                taken.push((base.unwrap(), count));
            });
        }
        let mut spans = Cost::default();
        for _ in 0..2_000 {
            let base = random.u32(0..SLOTS);
            let count = random.u32(0..SLOTS);
            spans.measure(|| runs.take_at(&words, base, count));
            spans.measure(|| runs.give_back(&words, base, count));
        }
        let pairs = gives.all + takes.all;
        let costs = [
            ("growth", growth),
            ("give", gives),
            ("take", takes),
            ("span", spans),
        ];
        for (name, cost) in &costs {
            let mean = cost.all / cost.calls;
            let (most, different) = (cost.most, cost.different);
            eprintln!("{name}: mean {mean}, most {most}, different {different}");
            // At most two to find a run, four to assign it, and four if all blocks are stale.
            assert!(cost.most <= 10 * LEVELS);
            assert!(cost.different <= 4 * LEVELS);
        }
        // Most runs are in one small block, and few blocks are stale.
        assert!(pairs <= 5 * LEVELS * 2_000);
    }
}
