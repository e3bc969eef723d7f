//! Allocator of runs of adjacent slots, first fit.

/// Occupancy flags of the slots.
#[derive(Debug)]
pub(crate) struct RunAllocator<'s> {
    taken: &'s mut [bool],
}

impl<'s> RunAllocator<'s> {
    /// Creates an allocator with all slots free: one slot per flag, at most `slots`.
    pub(crate) fn new(taken: &'s mut [bool], slots: usize) -> Self {
        let count = slots.min(taken.len());
        let (taken, _) = taken.split_at_mut(count);
        taken.fill(false);
        Self { taken }
    }

    /// Takes the first free run of `count` slots and returns its first index.
    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        if count == 0 {
            return Some(0);
        }
        let mut free = 0_usize;
        let last = self.taken.iter().position(|taken| {
            free = if *taken { 0 } else { free.saturating_add(1) };
            free == count
        })?;
        let first = last.checked_sub(count.checked_sub(1)?)?;
        self.mark(first, count, true);
        Some(first)
    }

    /// Gives a run back.
    pub(crate) fn give_back(&mut self, first: usize, count: usize) {
        self.mark(first, count, false);
    }

    fn mark(&mut self, first: usize, count: usize, taken: bool) {
        let end = first.saturating_add(count);
        if let Some(run) = self.taken.get_mut(first..end) {
            run.fill(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_and_given_back() {
        let mut flags = [true; 9];
        let mut runs = RunAllocator::new(&mut flags, 8);
        assert_eq!(
            [runs.take(3), runs.take(2), runs.take(4), runs.take(3)],
            [Some(0), Some(3), None, Some(5)]
        );
        assert_eq!((runs.take(1), runs.take(0)), (None, Some(0)));
        runs.give_back(3, 2);
        assert_eq!((runs.take(3), runs.take(2)), (None, Some(3)));
        runs.give_back(7, 100);
        runs.give_back(0, 3);
        assert_eq!((runs.take(4), runs.take(3)), (None, Some(0)));
    }
}
