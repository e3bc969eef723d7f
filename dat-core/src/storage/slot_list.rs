//! Lists of slots of a table, by links in the slots.

use crate::id::Index;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Link of a slot in a list, which holds the slot at most once. Changed under a lock.
#[derive(Debug)]
pub(crate) struct SlotLink(
    /// 0 outside of a list; else the index of the next slot plus 1, or `END`.
    AtomicU32,
);

/// Link of the last slot of a list.
const END: u32 = u32::MAX;

impl SlotLink {
    /// The link of a slot outside of a list.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(crate) const NONE: Self = Self(AtomicU32::new(0));

    pub(crate) fn is_listed(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Puts the slot before `next`, or at the end of a list.
    pub(crate) fn set(&self, next: Option<Index>) {
        let word = next.map_or(END, |next| next.get().wrapping_add(1));
        self.0.store(word, Ordering::Relaxed);
    }

    /// Removes the first slot of a list; returns the next one.
    pub(crate) fn take(&self) -> Option<Index> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 | END => None,
            next => Some(Index::from_word(next.wrapping_sub(1))),
        }
    }

    /// Removes the slot from a list that nobody uses.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Link of a slot in a [`VisitList`].
#[derive(Debug)]
pub(crate) struct VisitLink(#[cfg(feature = "std")] SlotLink);

impl VisitLink {
    /// The link of a slot outside of the list.
    #[cfg_attr(
        feature = "std",
        expect(
            clippy::declare_interior_mutable_const,
            reason = "a value to build slots from"
        )
    )]
    pub(crate) const NONE: Self = Self(
        #[cfg(feature = "std")]
        SlotLink::NONE,
    );

    /// Removes the slot from a list that nobody uses.
    pub(crate) fn clear(&self) {
        #[cfg(feature = "std")]
        self.0.clear();
    }
}

/// List of slots to visit; contexts enter it at any time, each slot under a lock of its object.
///
/// A slot is in the list at most once. It leaves when the whole list is taken. Without the feature
/// `std`, tables are short, and the list is the whole table.
#[derive(Debug)]
pub(crate) struct VisitList {
    /// Index of the first slot plus 1; 0 if the list is empty.
    #[cfg(feature = "std")]
    first: AtomicU32,
}

#[cfg(feature = "std")]
impl VisitList {
    pub(crate) const fn new() -> Self {
        Self {
            first: AtomicU32::new(0),
        }
    }

    /// Adds the slot at `index` unless its link is in the list. Needs the lock of its object.
    ///
    /// The caller sees all writes that came before a `take` which did not return this slot.
    #[cold]
    pub(crate) fn enter(&self, index: Index, link: &VisitLink) {
        let VisitLink(link) = link;
        if link.is_listed() {
            return;
        }
        let word = index.get().wrapping_add(1);
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            link.set(index_of(first));
            // Acquire pairs with `take`; Release publishes the link.
            match self
                .first
                .compare_exchange_weak(first, word, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(current) => first = current,
            }
        }
    }

    /// Empties the list; returns its first slot.
    ///
    /// The links stay until [`next`](Self::next).
    pub(crate) fn take(&self) -> Option<Index> {
        // Release publishes the caller's writes to each context that enters later.
        index_of(self.first.swap(0, Ordering::AcqRel))
    }

    /// Returns the slot after this one of a list that was taken.
    ///
    /// Needs the lock of its object, or take that lock afterwards: a context that found the link
    /// has stored its waker by then.
    pub(crate) fn next(_: Index, link: &VisitLink) -> Option<Index> {
        link.0.take()
    }
}

/// Returns the index that a word stands for.
#[cfg(feature = "std")]
fn index_of(word: u32) -> Option<Index> {
    word.checked_sub(1).map(Index::from_word)
}

#[cfg(not(feature = "std"))]
impl VisitList {
    pub(crate) const fn new() -> Self {
        Self {}
    }

    /// Has no effect: the list has all slots.
    pub(crate) fn enter(&self, _: Index, _: &VisitLink) {}

    /// Returns the first slot of the table.
    pub(crate) fn take(&self) -> Option<Index> {
        Some(Index::FIRST)
    }

    /// Returns the next slot of the table.
    pub(crate) fn next(index: Index, _: &VisitLink) -> Option<Index> {
        Index::new(usize::from(index).wrapping_add(1))
    }
}
