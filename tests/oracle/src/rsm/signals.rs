//! Pending signals of a segment, some of which may be lost.

/// Bounds of the number of pending signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    most: u32,
    least: u32,
}

impl Signals {
    /// Adds a signal.
    ///
    /// Spec: RSMSG-02, RSMSG-04
    pub(crate) fn count(&mut self, no_accumulate: bool) {
        if no_accumulate {
            // One is pending now, in both cases.
            self.most = self.most.max(1);
            self.least = self.least.max(1);
        } else {
            self.most += 1;
            self.least += 1;
        }
    }

    /// Makes the signals since `before` doubtful.
    pub(crate) fn doubt_since(&mut self, before: Self) {
        self.least = self.least.min(before.least);
    }

    /// Records if any signal was seen; [`any`](Self::any) disagrees if that is impossible.
    pub(crate) fn observed(&mut self, any: bool) {
        if any {
            self.least = self.least.max(self.most.min(1));
        } else if self.least == 0 {
            self.most = 0;
        }
    }

    /// Returns true if a signal is pending, after it was observed.
    pub(crate) fn any(self) -> bool {
        self.most != 0
    }

    /// Takes a signal; returns false if there is none.
    pub(crate) fn take(&mut self) -> bool {
        let any = self.any();
        self.most = self.most.saturating_sub(1);
        self.least = self.least.saturating_sub(1);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMSG-02, RSMSG-04
    #[test]
    fn a_signal_that_arrived_cannot_be_missing() {
        let mut signals = Signals::default();
        signals.count(false);
        signals.observed(false);
        assert!(signals.any(), "it is still expected");
        signals.count(true);
        assert!(signals.take());
        assert!(!signals.take(), "the second one gave way");
    }

    /// Spec: RSMSG-02
    #[test]
    fn a_signal_that_was_not_posted_cannot_arrive() {
        let mut signals = Signals::default();
        signals.observed(true);
        assert!(!signals.any());
    }

    /// Spec: RSMSG-02, RSMSG-04
    #[test]
    fn an_observation_decides_about_a_doubtful_signal() {
        let mut signals = Signals::default();
        signals.count(false);
        let before = signals;
        signals.count(false);
        signals.doubt_since(before);
        assert!(signals.take());
        let mut gone = signals;
        gone.observed(false);
        assert!(!gone.any());
        signals.observed(true);
        assert!(signals.take());
        assert!(!signals.any());
    }
}
