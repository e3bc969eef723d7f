//! Entries of a work queue that wait for its doorbell.

use alloc::vec::Vec;

/// Committed entries of a work queue, and its room.
#[derive(Debug)]
pub(crate) struct Posted<T> {
    entries: Vec<T>,
    depth: usize,
    /// Upper bound of the entries that the executor has.
    known: usize,
}

impl<T> Posted<T> {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            entries: Vec::new(),
            depth,
            known: 0,
        }
    }

    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops the entries that were not handed over.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.known = self.depth;
    }

    /// Returns true if one more entry fits; `incomplete` asks the executor how many it has.
    #[inline]
    pub(crate) fn has_room(&mut self, incomplete: impl FnOnce() -> Option<usize>) -> bool {
        if self.entries.try_reserve(1).is_err() {
            return false;
        }
        if self.known + self.entries.len() < self.depth {
            return true;
        }
        self.known = incomplete().unwrap_or(self.depth);
        self.known + self.entries.len() < self.depth
    }

    /// Adds an entry, for which there is room.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        self.entries.push(entry);
    }

    /// Hands the entries over by `take`, as `Executor::post_requests`; the error is their number.
    #[inline]
    pub(crate) fn hand_over(
        &mut self,
        take: impl FnOnce(&mut Vec<T>) -> Option<usize>,
    ) -> Result<(), u32> {
        let count = self.entries.len();
        if count == 0 {
            return Ok(());
        }
        let taken = take(&mut self.entries);
        self.entries.clear();
        self.known = taken.ok_or(count as u32)?;
        Ok(())
    }
}
