//! First-in, first-out list of the free slots of a table that grows.

use crate::id::Index;
use crate::sync::Slots;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Link of a free slot, lent with each slot of a table that grows.
#[derive(Debug)]
pub struct FreeLink(
    /// Index of the slot that was freed next.
    AtomicU32,
);

impl FreeLink {
    /// The link of a slot that is not free.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub const EMPTY: Self = Self(AtomicU32::new(0));
}

/// The free slots of a table, longest free first. All calls need the control lock.
pub(crate) struct FreeList<'s> {
    links: Slots<'s, FreeLink>,
    /// Index of the slot that is free longest, if the list is not empty.
    first: AtomicU32,
    /// Index of the slot that was freed last, if the list is not empty.
    last: AtomicU32,
    length: AtomicU32,
    /// Number of slots at the start of the table that were ever claimed.
    used: AtomicU32,
}

impl<'s> FreeList<'s> {
    /// Creates the list of a table without slots; `links` has a word for each slot.
    pub(super) const fn new(links: Slots<'s, FreeLink>) -> Self {
        Self {
            links,
            first: AtomicU32::new(0),
            last: AtomicU32::new(0),
            length: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// Returns the slot to claim next; `None` if there is none.
    ///
    /// It is one that was never used as long as at most `kept` slots are free and the table can
    /// grow.
    pub(super) fn find<T>(&self, slots: &Slots<'_, T>, kept: u32) -> Option<Index> {
        let length = self.length.load(Ordering::Relaxed);
        if length <= kept
            && let Some(unused) = Index::new(self.used.load(Ordering::Relaxed) as usize)
        {
            let count = usize::from(unused).saturating_add(1);
            if slots.make(count) && self.links.make(count) {
                return Some(unused);
            }
        }
        (length != 0).then(|| Index::from_word(self.first.load(Ordering::Relaxed)))
    }

    /// Claims the slot that `find` returned.
    pub(super) fn claim(&self, index: Index) {
        let used = self.used.load(Ordering::Relaxed);
        if index.get() == used {
            self.used.store(used.wrapping_add(1), Ordering::Relaxed);
        } else if let Some(next) = self.links.get(usize::from(index)) {
            self.first
                .store(next.0.load(Ordering::Relaxed), Ordering::Relaxed);
            self.change_length(|length| length.wrapping_sub(1));
        }
    }

    /// Adds a slot that was claimed.
    pub(super) fn give_back(&self, index: Index) {
        let last = self.last.swap(index.get(), Ordering::Relaxed);
        let before = match self.length.load(Ordering::Relaxed) {
            0 => Some(&self.first),
            _ => self.links.get(last as usize).map(|link| &link.0),
        };
        if let Some(before) = before {
            before.store(index.get(), Ordering::Relaxed);
            self.change_length(|length| length.wrapping_add(1));
        }
    }

    fn change_length(&self, change: impl Fn(u32) -> u32) {
        let length = self.length.load(Ordering::Relaxed);
        self.length.store(change(length), Ordering::Relaxed);
    }
}
