//! The handles that providers have returned.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::adapters::SlotIndex;
use crate::boundary::{Inherited, InheritedGuard};
use crate::handles::CHandle;

/// A handle with kind and adapter in one word, so that reads get all parts.
///
/// The parts are the address, a multiple of 8 below 2^47, the slot of the adapter, and the kind,
/// from 1. Zero is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

const KIND_BITS: u32 = 4;
const SLOT_BITS: u32 = 16;
const ADDRESS_BITS: u32 = 64 - KIND_BITS - SLOT_BITS;

impl Word {
    const NONE: Self = Self(0);

    fn new(address: usize, kind: HandleKind, slot: SlotIndex) -> Option<Self> {
        let address = shortened(address)?;
        let slot = u64::from(slot.number());
        Some(Self(
            address << (SLOT_BITS + KIND_BITS) | slot << KIND_BITS | kind_number(kind),
        ))
    }

    #[inline]
    const fn address(self) -> u64 {
        self.0 >> (SLOT_BITS + KIND_BITS)
    }

    #[inline]
    const fn slot(self) -> SlotIndex {
        SlotIndex::new((self.0 >> KIND_BITS) as u16)
    }

    #[inline]
    fn is_of(self, kind: HandleKind) -> bool {
        self.0 & ((1 << KIND_BITS) - 1) == kind_number(kind)
    }
}

#[inline]
fn kind_number(kind: HandleKind) -> u64 {
    u64::from(kind.value()) + 1
}

/// Returns the address as words have it; `None` if no object can be there.
#[inline]
fn shortened(address: usize) -> Option<u64> {
    let address = (address as u64).rotate_right(3);
    (address >> ADDRESS_BITS == 0 && address != 0).then_some(address)
}

/// Number of words of the first table.
const FIRST: usize = 1 << 10;
/// Number of tables; each is twice as long as the one before.
const GROWTHS: usize = 20;

/// All handles: a hash table that is searched from the index of the address.
///
/// It is written here because the maps of libraries lack what this one needs:
/// - Each redirected call searches it, so a search is a few loads. `dashmap` and `scc` take locks
///   for it: changes of words that threads share. `papaya` and `scc` announce it to a collector,
///   through a value of the thread, whose list of numbers takes memory.
/// - A forked child searches it too. What other threads had locked or announced at the fork stays
///   so in the child; `Inherited` passes its lock on.
/// - An exhausted heap is an error of the call. `papaya` ends the process if it gets no memory.
/// - An address may be there twice, with other kinds and adapters.
///
/// Searches take no lock; changes do. While entries are moved, a search may miss one, so it is
/// repeated with the lock.
///
/// An address may be there twice for a short time: its object was freed, and another thread made an
/// object there before the first entry was removed.
pub(super) struct Known {
    /// Each is twice as long as the one before. Tables before the current one are only used by
    /// searches that began there.
    tables: [OnceLock<Box<[AtomicU64]>>; GROWTHS],
    current: AtomicUsize,
    /// Number of handles. Locked while the table changes.
    count: Inherited<usize>,
}

impl Known {
    pub(super) const fn new() -> Self {
        Self {
            tables: [const { OnceLock::new() }; GROWTHS],
            current: AtomicUsize::new(0),
            count: Inherited::new(0),
        }
    }

    pub(super) fn lock(&self) -> InheritedGuard<'_, usize> {
        self.count.lock()
    }

    #[inline]
    fn table(&self) -> &[AtomicU64] {
        let current = self.tables.get(self.current.load(Ordering::Acquire));
        match current.and_then(OnceLock::get) {
            Some(table) => table,
            None => &[],
        }
    }

    /// Returns the adapter of a handle of this kind.
    #[inline]
    pub(super) fn find(&self, handle: CHandle, kind: HandleKind) -> Option<SlotIndex> {
        let address = shortened(handle.address())?;
        let first = probe(self.table(), address).next();
        match first {
            Some(word) if word.address() == address && word.is_of(kind) => Some(word.slot()),
            _ => self.search(address, kind),
        }
    }

    /// Continues `find` after its first entry.
    #[inline(never)]
    fn search(&self, address: u64, kind: HandleKind) -> Option<SlotIndex> {
        let is_it = |word: &Word| word.address() == address && word.is_of(kind);
        let found = probe(self.table(), address).find(is_it);
        let found = found.or_else(|| {
            let _count = self.lock();
            probe(self.table(), address).find(is_it)
        });
        found.map(Word::slot)
    }

    /// Returns the adapter of a handle of any kind.
    pub(super) fn find_any(&self, handle: CHandle) -> Option<SlotIndex> {
        let address = shortened(handle.address())?;
        let _count = self.lock();
        let found = probe(self.table(), address).find(|word| word.address() == address);
        found.map(Word::slot)
    }

    /// Adds a handle.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there are too many handles, or no object can be at this
    /// address.
    pub(super) fn add(&self, handle: CHandle, kind: HandleKind, slot: SlotIndex) -> Result<()> {
        let full = Error::insufficient_resources(Subtype::ResourceMemory);
        let word = Word::new(handle.address(), kind, slot).ok_or(full)?;
        let mut count = self.lock();
        self.put(&mut count, word).ok_or(full)
    }

    /// Adds a word; `None` if there is no memory.
    fn put(&self, count: &mut usize, word: Word) -> Option<()> {
        // At most half full, so that searches are short.
        if (*count + 1) * 2 > self.table().len() {
            self.grow()?;
        }
        store(self.table(), word);
        *count += 1;
        Some(())
    }

    /// Adds a handle unless it is there, for handles that providers return more than once.
    ///
    /// A handle that is returned once is added by `add`, because its predecessor at the same
    /// address may not be removed yet.
    pub(super) fn adopt(&self, handle: CHandle, kind: HandleKind, slot: SlotIndex) {
        let Some(word) = Word::new(handle.address(), kind, slot) else {
            return;
        };
        let mut count = self.lock();
        let is_it = |known: Word| known.address() == word.address() && known.is_of(kind);
        if !probe(self.table(), word.address()).any(is_it) {
            // A handle that cannot be noted is refused later.
            let _noted: Option<()> = self.put(&mut count, word);
        }
    }

    /// Moves all words into a table of twice the length.
    fn grow(&self) -> Option<()> {
        let before = self.table();
        let next = match before.len() {
            0 => 0,
            _ => self.current.load(Ordering::Relaxed) + 1,
        };
        let length = FIRST << next;
        let mut table = Vec::new();
        table.try_reserve_exact(length).ok()?;
        table.resize_with(length, || AtomicU64::new(0));
        for word in words(before) {
            store(&table, word);
        }
        let entry = self.tables.get(next)?;
        let _new = entry.set(table.into_boxed_slice());
        self.current.store(next, Ordering::Release);
        Some(())
    }

    /// Removes a handle, whose object is gone.
    pub(super) fn remove(&self, handle: CHandle, kind: HandleKind, slot: SlotIndex) {
        if let Some(word) = Word::new(handle.address(), kind, slot) {
            let mut count = self.lock();
            if remove(self.table(), word) {
                *count -= 1;
            }
        }
    }

    /// Removes all handles of an adapter, whose objects are gone.
    pub(super) fn remove_all(&self, slot: SlotIndex) {
        let mut count = self.lock();
        let table = self.table();
        let gone: Vec<Word> = words(table).filter(|word| word.slot() == slot).collect();
        for word in gone {
            if remove(table, word) {
                *count -= 1;
            }
        }
    }
}

fn words(table: &[AtomicU64]) -> impl Iterator<Item = Word> {
    let all = table.iter().map(|word| Word(word.load(Ordering::Acquire)));
    all.filter(|word| *word != Word::NONE)
}

/// Returns the index where the search for an address begins; the length is a power of two, or 0.
#[inline]
fn start(length: usize, address: u64) -> usize {
    // The golden ratio spreads addresses with a pattern; the upper half of the product is spread
    // better.
    let spread = address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    spread as usize & length.wrapping_sub(1)
}

/// Returns all cells, from the index of the address on.
#[inline]
fn cells(table: &[AtomicU64], address: u64) -> impl Iterator<Item = &AtomicU64> {
    let mask = table.len().wrapping_sub(1);
    let begin = start(table.len(), address);
    (0..table.len()).map_while(move |step| table.get(begin.wrapping_add(step) & mask))
}

/// Returns the words from the index of the address up to the first gap.
#[inline]
fn probe(table: &[AtomicU64], address: u64) -> impl Iterator<Item = Word> {
    cells(table, address)
        .map(|word| Word(word.load(Ordering::Acquire)))
        .take_while(|word| *word != Word::NONE)
}

/// Puts a word into the first gap, which exists.
fn store(table: &[AtomicU64], word: Word) {
    let gap = cells(table, word.address()).find(|cell| cell.load(Ordering::Relaxed) == 0);
    if let Some(gap) = gap {
        gap.store(word.0, Ordering::Release);
    }
}

/// Removes a word, and moves up later words that a gap would hide from searches.
fn remove(table: &[AtomicU64], word: Word) -> bool {
    let mask = table.len().wrapping_sub(1);
    let begin = start(table.len(), word.address());
    let mut words = cells(table, word.address())
        .map(|cell| (cell, Word(cell.load(Ordering::Relaxed))))
        .enumerate()
        .take_while(|(_, (_, word))| *word != Word::NONE);
    let Some((mut free, (mut gap, _))) = words.find(|(_, (_, found))| *found == word) else {
        return false;
    };
    for (step, (cell, moved)) in words {
        let home = start(table.len(), moved.address()).wrapping_sub(begin);
        // Its distance from the index of its address, in the gap and now.
        if free.wrapping_sub(home) & mask < step.wrapping_sub(home) & mask {
            gap.store(moved.0, Ordering::Release);
            (free, gap) = (step, cell);
        }
    }
    gap.store(0, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn handle(address: usize) -> CHandle {
        CHandle::from_address(address)
    }

    /// Spec: GEN-03
    #[test]
    fn only_added_handles_are_found_by_their_kind() {
        let known = Known::new();
        let slot = SlotIndex::new(65_535);
        let object = handle(0x7fff_ffff_fff8);
        assert_eq!(known.find(object, HandleKind::Ep), None);
        assert_eq!(known.add(object, HandleKind::Ep, slot), Ok(()));
        assert_eq!(known.find(object, HandleKind::Ep), Some(slot));
        assert_eq!(known.find(object, HandleKind::Evd), None);
        assert_eq!(known.find_any(object), Some(slot));
        for address in [
            0,
            1,
            8,
            0x7fff_ffff_fff0,
            0x7fff_ffff_fff9,
            1 << 47,
            usize::MAX,
            usize::MAX - 7,
        ] {
            assert_eq!(known.find(handle(address), HandleKind::Ep), None);
            assert_eq!(known.find_any(handle(address)), None);
        }
        for address in [0, 4, 1 << 47] {
            let refused = known.add(handle(address), HandleKind::Ep, slot);
            assert_eq!(
                refused,
                Err(Error::insufficient_resources(Subtype::ResourceMemory))
            );
        }
        known.remove(object, HandleKind::Ep, slot);
        assert_eq!(known.find(object, HandleKind::Ep), None);
        assert_eq!(known.find_any(object), None);
    }

    /// A freed object's memory may have a new object before the first is removed.
    #[test]
    fn a_successor_at_the_same_address_stays_known() {
        let known = Known::new();
        let (first, second) = (SlotIndex::new(1), SlotIndex::new(2));
        for (kind, slot) in [
            (HandleKind::Pz, first),
            (HandleKind::Evd, first),
            (HandleKind::Pz, second),
        ] {
            let object = handle(4096);
            known.add(object, HandleKind::Pz, first).expect("is noted");
            known.add(object, kind, slot).expect("is noted");
            assert_eq!(
                known.find(object, kind),
                Some(slot)
                    .filter(|_| kind == HandleKind::Evd)
                    .or(Some(first))
            );
            known.remove(object, HandleKind::Pz, first);
            assert_eq!(known.find(object, kind), Some(slot));
            known.remove(object, kind, slot);
            assert_eq!(known.find_any(object), None);
        }
    }

    /// A request may have the address of one that was accepted and is removed late.
    ///
    /// Each removal removes one entry.
    ///
    /// Spec: CRA-01
    #[test]
    fn a_request_stays_known_after_the_late_removal_of_its_predecessor() {
        let known = Known::new();
        let (slot, request) = (SlotIndex::new(3), handle(4096));
        known.add(request, HandleKind::Cr, slot).expect("is noted");
        known.add(request, HandleKind::Cr, slot).expect("is noted");
        known.remove(request, HandleKind::Cr, slot);
        assert_eq!(known.find(request, HandleKind::Cr), Some(slot));
        known.remove(request, HandleKind::Cr, slot);
        assert_eq!(known.find(request, HandleKind::Cr), None);
        // A handle that is adopted many times is there once.
        for _ in 0..3 {
            known.adopt(request, HandleKind::Ep, slot);
        }
        known.remove(request, HandleKind::Ep, slot);
        assert_eq!(known.find_any(request), None);
        assert_eq!(*known.lock(), 0);
    }

    #[test]
    fn handles_are_added_and_removed_in_any_order() {
        let known = Known::new();
        let mut state = 0x5eed_u64;
        let mut model = HashSet::new();
        let kinds = [HandleKind::Ep, HandleKind::Lmr, HandleKind::Cr];
        for round in 0..60_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let address = 64 + 8 * ((state >> 40) as usize % 6000);
            let kind = kinds[address / 8 % kinds.len()];
            let slot = SlotIndex::new((address % 7) as u16);
            let object = handle(address);
            match (model.contains(&address), state >> 36 & 3) {
                (false, 0..3) => {
                    known.add(object, kind, slot).expect("is noted");
                    model.insert(address);
                }
                (true, 0..2) => {
                    known.remove(object, kind, slot);
                    model.remove(&address);
                }
                (there, _) => {
                    assert_eq!(known.find(object, kind), there.then_some(slot), "{round}")
                }
            }
        }
        assert_eq!(*known.lock(), model.len());
        known.remove_all(SlotIndex::new(3));
        for address in (64..64 + 8 * 6000).step_by(8) {
            let there = model.contains(&address) && address % 7 != 3;
            assert_eq!(known.find_any(handle(address)).is_some(), there);
        }
    }

    /// No search misses a handle because others come and go, or while the table grows.
    #[test]
    fn a_known_handle_is_found_during_changes() {
        let known = Known::new();
        let stop = AtomicBool::new(false);
        let slot = SlotIndex::new(0);
        let stay = |index: usize| handle(1 << 20 | index << 6);
        for index in 0..300 {
            known
                .add(stay(index), HandleKind::Evd, slot)
                .expect("is noted");
        }
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        for index in 0..300 {
                            assert_eq!(known.find(stay(index), HandleKind::Evd), Some(slot));
                        }
                    }
                });
            }
            for round in 0..20_usize {
                let many = 200 << (round / 4);
                let others = || (1..many).map(|index| handle(index << 4));
                for other in others() {
                    known.add(other, HandleKind::Ep, slot).expect("is noted");
                }
                for other in others() {
                    known.remove(other, HandleKind::Ep, slot);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
