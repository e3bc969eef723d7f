//! Allocator of runs: consecutive slots of a table that grows at its end.
//!
//! A binary tree of aligned blocks. A node stores three lengths of its block: the free slots at its
//! start, those at its end, and its longest free run. A call descends from the root, so its cost is
//! logarithmic in the length of the table. FreeRuns are exact, begin at any slot, and are the first
//! that fit. So runs that are as long together as the table fit into it, if none is given back.
//!
//! Groups of 32 slots are the leaves. One word has a bit for each slot of a group, which is set if
//! the slot is free. The node of a larger block is stored with the group that begins in the middle
//! of the block. If that group is beyond the end of the table, the block has no node, and its first
//! half describes it. So growth moves no node.
//!
//! A block that becomes free or taken as a whole only gets its node stored and marked: the words
//! below it are stale. The next call that changes a part of the block stores its halves first.
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

/// Order of a group: the smallest block has 2^5 slots.
const GROUP_ORDER: u32 = 5;
/// Slots of a group.
const GROUP_SIZE: u32 = 1 << GROUP_ORDER;
/// Words of a node: lengths of the prefix, of the suffix and of the longest run, and the mark.
const NODE_WORDS: u32 = 4;
/// Words for each group: those of the node of the block that it is in the middle of, and its bits.
///
/// The first group is in no middle, so the bits come last and those of the first are at index 0.
const GROUP_WORDS: u32 = NODE_WORDS + 1;

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
        let tree = self.tree(words);
        let base = tree.find(count)?;
        tree.assign(tree.root(), Span::new(base, count), false);
        Some(base)
    }

    /// Takes the run of `count` slots from `base`, which the caller knows to be free.
    ///
    /// Slots beyond the end are ignored, and so are slots that are taken.
    pub(crate) fn take_at(&self, words: &[RunWord], base: u32, count: u32) {
        let tree = self.tree(words);
        tree.assign(tree.root(), Span::new(base, count), false);
    }

    /// Gives back the run of `count` slots from `base`, which may be a part of one that was taken.
    ///
    /// Slots beyond the end are ignored, and so are slots that are free.
    pub(crate) fn give_back(&self, words: &[RunWord], base: u32, count: u32) {
        let tree = self.tree(words);
        tree.assign(tree.root(), Span::new(base, count), true);
    }

    /// Returns the smallest length of the table for which `take` succeeds.
    ///
    /// The free slots at the end count. Returns `None` if the length exceeds [`SLOTS_MAX`].
    pub(crate) fn needed(&self, words: &[RunWord], count: u32) -> Option<u32> {
        let tree = self.tree(words);
        let all = tree.summary(tree.root());
        if count <= all.longest {
            return Some(tree.end);
        }
        let taken = tree.end.saturating_sub(all.suffix);
        taken.checked_add(count).filter(|end| *end <= SLOTS_MAX)
    }

    /// Grows the table to `end` slots, of which the new ones are free.
    ///
    /// All words that the new slots add are empty. Returns false, without effect, if `words` is too
    /// short or `end` exceeds [`SLOTS_MAX`]. A shorter table than before is no change.
    #[must_use]
    pub(crate) fn grow(&self, words: &[RunWord], end: u32) -> bool {
        let old = self.end();
        if end > SLOTS_MAX || words.len() < Self::words(end) as usize {
            return false;
        }
        if end > old {
            // All blocks that contain the old end are joined anew from their halves. If one of
            // them is stale, its halves get the new slots too, like the old ones. The new slots
            // become free after that.
            self.end.store(end, Ordering::Relaxed);
            let tree = self.tree(words);
            let span = Span {
                first: old,
                stop: end,
            };
            tree.assign(tree.root(), span, true);
        }
        true
    }

    fn tree<'w>(&self, words: &'w [RunWord]) -> Tree<'w> {
        Tree {
            words,
            end: self.end(),
        }
    }
}

/// Lengths of the free runs of a block that matter to larger blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summary {
    /// Slots of the block before the end of the table.
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

    /// Stores the lengths in a node.
    fn store(self, node: &[RunWord; NODE_WORDS as usize]) {
        let [prefix, suffix, longest, _] = node;
        prefix.store(self.prefix);
        suffix.store(self.suffix);
        longest.store(self.longest);
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
}

/// Returns a word whose lowest `count` bits are set; all of them from 32 on.
const fn low_bits(count: u32) -> u32 {
    u32::MAX.unbounded_shr(GROUP_SIZE.saturating_sub(count))
}

/// Slots from `first` to before `stop`.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    stop: u32,
}

impl Span {
    const fn new(base: u32, count: u32) -> Self {
        Self {
            first: base,
            stop: base.saturating_add(count),
        }
    }
}

/// Block of 2^`order` slots; `base` is a multiple of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    base: u32,
    order: u32,
}

impl Block {
    const fn length(self) -> u32 {
        1_u32.wrapping_shl(self.order)
    }

    /// Returns the first slot of the second half.
    const fn middle(self) -> u32 {
        self.base.wrapping_add(self.length() >> 1)
    }

    /// Returns the halves of a block that is larger than a group.
    const fn halves(self) -> (Self, Self) {
        let order = self.order.wrapping_sub(1);
        let (base, middle) = (self.base, self.middle());
        let right = Self {
            base: middle,
            order,
        };
        (Self { base, order }, right)
    }
}

/// Words of an allocator, and the length of its table.
///
/// A word that is missing reads as 0: its slots are taken.
#[derive(Clone, Copy)]
struct Tree<'w> {
    words: &'w [RunWord],
    end: u32,
}

impl Tree<'_> {
    /// Returns the block of the whole table.
    const fn root(&self) -> Block {
        self.trim(Block { base: 0, order: 31 })
    }

    /// Returns the smallest block that contains the same slots of the table.
    ///
    /// Its second half begins before the end of the table, so it has a node or is a group.
    const fn trim(&self, block: Block) -> Block {
        // The order of the next power of two.
        let order = match self.size(block).checked_sub(1) {
            Some(last) => u32::BITS.wrapping_sub(last.leading_zeros()),
            None => 0,
        };
        Block {
            base: block.base,
            order: if order > GROUP_ORDER {
                order
            } else {
                GROUP_ORDER
            },
        }
    }

    /// Returns the number of slots of a block before the end of the table.
    const fn size(&self, block: Block) -> u32 {
        let rest = self.end.saturating_sub(block.base);
        if rest < block.length() {
            rest
        } else {
            block.length()
        }
    }

    /// Returns the word that has the bits of a group.
    fn bits(&self, group: Block) -> Option<&RunWord> {
        let index = (group.base >> GROUP_ORDER).wrapping_mul(GROUP_WORDS) as usize;
        #[cfg(test)]
        tests::trace(index, 1);
        self.words.get(index)
    }

    /// Returns the node of a trimmed block that is larger than a group.
    fn node(&self, block: Block) -> Option<&[RunWord; NODE_WORDS as usize]> {
        let group = block.middle() >> GROUP_ORDER;
        let index = group.wrapping_mul(GROUP_WORDS).wrapping_sub(NODE_WORDS) as usize;
        #[cfg(test)]
        tests::trace(index, NODE_WORDS as usize);
        self.words.get(index..)?.first_chunk()
    }

    fn load_bits(&self, group: Block) -> u32 {
        self.bits(group).map_or(0, RunWord::load)
    }

    fn store_bits(&self, group: Block, value: u32) {
        if let Some(bits) = self.bits(group) {
            bits.store(value);
        }
    }

    /// Returns the summary of a block.
    fn summary(&self, block: Block) -> Summary {
        let size = self.size(block);
        let block = self.trim(block);
        if block.order == GROUP_ORDER {
            return Summary::of_group(self.load_bits(block), size);
        }
        self.node(block)
            .map_or(Summary::uniform(size, false), |node| {
                let [prefix, suffix, longest, _] = node;
                Summary {
                    size,
                    prefix: prefix.load(),
                    suffix: suffix.load(),
                    longest: longest.load(),
                }
            })
    }

    /// Makes a block free or taken as a whole; returns its new summary.
    fn fill(&self, block: Block, free: bool) -> Summary {
        let summary = Summary::uniform(self.size(block), free);
        let block = self.trim(block);
        if block.order == GROUP_ORDER {
            self.store_bits(block, low_bits(summary.prefix));
        } else if let Some(node) = self.node(block) {
            summary.store(node);
            let [.., stale] = node;
            stale.store(1);
        }
        summary
    }

    /// Makes the halves of a stale block as free or taken as the block.
    fn push_down(&self, block: Block) {
        let Some([.., longest, stale]) = self.node(block) else {
            return;
        };
        if stale.load() != 0 {
            let free = longest.load() != 0;
            let (left, right) = block.halves();
            self.fill(left, free);
            self.fill(right, free);
            stale.store(0);
        }
    }

    /// Returns the first slot of the first free run of `count` slots.
    fn find(&self, count: u32) -> Option<u32> {
        let mut block = self.root();
        let mut summary = self.summary(block);
        if summary.longest < count {
            return None;
        }
        // The words below a stale node are not read: its free slots begin at its start. Each step
        // lowers the order.
        while block.order > GROUP_ORDER && summary.prefix < count {
            let (left, right) = block.halves();
            let first = self.summary(left);
            if first.longest >= count {
                (block, summary) = (self.trim(left), first);
                continue;
            }
            let second = self.summary(right);
            if first.suffix.saturating_add(second.prefix) >= count {
                return right.base.checked_sub(first.suffix);
            }
            (block, summary) = (self.trim(right), second);
        }
        if summary.prefix >= count {
            return Some(block.base);
        }
        let offset = find_bits(self.load_bits(block), count)?;
        block.base.checked_add(offset)
    }

    /// Makes the slots of a span free or taken, as far as a block has them.
    ///
    /// Returns the new summary of the block. Calls itself for the halves of at most two blocks of
    /// each order.
    fn assign(&self, block: Block, span: Span, free: bool) -> Summary {
        let size = self.size(block);
        let stop = block.base.saturating_add(size);
        if span.first >= stop || span.stop <= block.base {
            return self.summary(block);
        }
        if span.first <= block.base && span.stop >= stop {
            return self.fill(block, free);
        }
        let block = self.trim(block);
        if block.order == GROUP_ORDER {
            return self.assign_bits(block, span, free);
        }
        self.push_down(block);
        let (left, right) = block.halves();
        let summary = self
            .assign(left, span, free)
            .join(self.assign(right, span, free));
        if let Some(node) = self.node(block) {
            summary.store(node);
        }
        summary
    }

    /// Makes the slots of a span free or taken, as far as a group has them.
    fn assign_bits(&self, group: Block, span: Span, free: bool) -> Summary {
        let size = self.size(group);
        let before = low_bits(span.first.saturating_sub(group.base));
        let until = low_bits(span.stop.saturating_sub(group.base).min(size));
        let mask = until & !before;
        let bits = self.load_bits(group);
        let bits = if free { bits | mask } else { bits & !mask };
        self.store_bits(group, bits);
        Summary::of_group(bits, size)
    }
}

/// Returns the position of the first `count` consecutive bits.
fn find_bits(bits: u32, count: u32) -> Option<u32> {
    // A set bit begins a run of at least `length`, which at least doubles but for the last step.
    let mut starts = bits;
    let mut length = 1_u32;
    while length < count {
        let step = length.min(count.saturating_sub(length));
        starts &= starts.unbounded_shr(step);
        length = length.saturating_add(step);
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::vec::Vec;
    use std::{eprintln, vec};

    use super::*;

    std::thread_local! {
        /// Indices of the accessed words while a test traces.
        static TRACED: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
    }

    pub(super) fn trace(index: usize, words: usize) {
        TRACED.with_borrow_mut(|traced| {
            if let Some(indices) = traced {
                indices.extend(index..index + words);
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
            let tree = self.runs.tree(&self.words);
            self.check_block(&tree, tree.root());
        }

        fn check_block(&self, tree: &Tree<'_>, block: Block) {
            let block = tree.trim(block);
            let slots = self.slots(block);
            assert_eq!(tree.summary(block), summarise(slots), "{block:?}");
            if block.order == GROUP_ORDER {
                let bits = tree.load_bits(block);
                let expected = slots
                    .iter()
                    .rev()
                    .fold(0, |bits, free| bits << 1 | u32::from(*free));
                assert_eq!(bits, expected, "{block:?}");
            } else if tree.node(block).unwrap()[3].load() == 0 {
                let (left, right) = block.halves();
                self.check_block(tree, left);
                self.check_block(tree, right);
            } else {
                assert!(slots.iter().all(|free| *free == slots[0]), "{block:?}");
            }
        }

        fn slots(&self, block: Block) -> &[bool] {
            let stop = (block.base as usize + block.length() as usize).min(self.free.len());
            &self.free[block.base as usize..stop]
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
            suffix: runs().last().unwrap_or(0),
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
        for (rounds, steps, limit) in [(100, 150, 100), (30, 200, 400), (3, 300, 3_000)] {
            for _ in 0..rounds {
                random_calls(&mut random, steps, limit);
            }
        }
    }

    /// Makes random calls on a table of at most `limit` slots.
    fn random_calls(random: &mut fastrand::Rng, steps: usize, limit: usize) {
        let mut table = Checked::new(random.usize(0..limit));
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let longest = random.usize(1..=limit / 2);
        let mut grown = 0;
        let mut refused = 0;
        for _ in 0..steps {
            match random.u32(0..10) {
                0..5 => {
                    let count = random.usize(1..=longest);
                    let needed = table.needed(count);
                    let mut base = table.take(count);
                    assert_eq!(base.is_some(), needed == table.free.len());
                    if base.is_none() && needed <= limit {
                        table.grow(needed);
                        base = table.take(count);
                        assert_eq!(base, Some((needed - count) as u32));
                        grown += 1;
                    }
                    match base {
                        Some(base) => taken.push((base as usize, count)),
                        None => refused += 1,
                    }
                }
                5..8 if !taken.is_empty() => {
                    let (base, count) = taken.swap_remove(random.usize(0..taken.len()));
                    let first = random.usize(0..=count);
                    let stop = random.usize(first..=count);
                    table.give_back(base + first, stop - first);
                    if random.bool() {
                        // The rest goes back in one call, with slots that are free.
                        table.give_back(base, count);
                    } else {
                        taken.extend([(base, first), (base + stop, count - stop)]);
                    }
                }
                8 if !taken.is_empty() => {
                    let (base, count) = taken[random.usize(0..taken.len())];
                    table.give_back(base, count);
                    table.check();
                    table.take_at(base, count);
                }
                9 if random.u8(0..4) == 0 => {
                    let end = table.free.len();
                    table.grow(random.usize(end..=limit.max(end)));
                }
                _ => {}
            }
            table.check();
            let slots: usize = taken.iter().map(|(_, count)| count).sum();
            let free = table.free.iter().filter(|free| **free).count();
            assert_eq!(slots + free, table.free.len());
        }
        assert!(steps < 600 || grown != 0 || refused != 0);
        random.shuffle(&mut taken);
        for (base, count) in taken {
            table.give_back(base, count);
            table.check();
        }
        let end = table.free.len();
        assert_eq!(table.take(end), Some(0));
    }

    /// A call on a million slots touches few words, however they are taken.
    #[test]
    fn cost_is_logarithmic() {
        const SLOTS: u32 = 1_000_000;
        const LEVELS: usize = 20;
        let mut random = seeded("cost_is_logarithmic");
        let words: Box<[RunWord]> = (0..FreeRuns::words(SLOTS))
            .map(|_| RunWord::EMPTY)
            .collect();
        let runs = FreeRuns::new();
        let mut most = (0, 0);
        let mut all = (0, 0);
        let mut calls = 0;
        let mut measure = |call: &mut dyn FnMut()| {
            let indices = traced(call);
            let places: BTreeSet<usize> = indices
                .iter()
                .map(|index| (index + 4) / GROUP_WORDS as usize)
                .collect();
            most = (indices.len().max(most.0), places.len().max(most.1));
            all = (all.0 + indices.len(), all.1 + places.len());
            calls += 1;
        };
        measure(&mut || assert!(runs.grow(&words, SLOTS)));
        let mut taken = vec![];
        while let Some(base) = {
            let count = random.u32(1..200);
            runs.take(&words, count).map(|base| (base, count))
        } {
            taken.push(base);
        }
        random.shuffle(&mut taken);
        let (given, _kept) = taken.split_at(taken.len() / 2);
        for (base, count) in given {
            measure(&mut || runs.give_back(&words, *base, *count));
        }
        for _ in 0..1_000 {
            let count = random.u32(1..200);
            let base = runs.take(&words, count).unwrap();
            runs.give_back(&words, base, count);
            let mut pair = || {
                assert_eq!(runs.take(&words, count), Some(base));
                runs.give_back(&words, base, count);
            };
            measure(&mut pair);
        }
        for _ in 0..1_000 {
            let base = random.u32(0..SLOTS);
            let count = random.u32(0..SLOTS);
            measure(&mut || {
                runs.take_at(&words, base, count);
                runs.give_back(&words, base, count);
            });
        }
        eprintln!("most: {most:?}, all: {all:?}, calls: {calls}");
        assert!(most.1 <= 4 * LEVELS, "{} nodes and groups", most.1);
    }
}
