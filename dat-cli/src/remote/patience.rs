//! How long one side waits for the other.

use std::time::{Duration, Instant};

/// Looks after the end of a time limit that must find nothing, too.
///
/// A process that was stopped, as by `docker pause`, sees that the limit has passed before it has
/// read what came meanwhile. Its peer may have been stopped as well, and goes on a little later.
const LATE_LOOKS: u32 = 4;

/// A time limit that passes only if the looks after it find nothing either.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    late_looks: u32,
}

impl Limit {
    /// Counts a look that found nothing; returns true if the time is over.
    ///
    /// `is_late` tells whether the look ended after the limit.
    pub(crate) fn is_over(&mut self, is_late: bool) -> bool {
        self.late_looks = if is_late { self.late_looks + 1 } else { 0 };
        self.late_looks > LATE_LOOKS
    }
}

/// A wait for one answer of a peer.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    heard: Instant,
    silence: Limit,
    work: Limit,
}

/// The limit that a wait has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// The peer says nothing.
    Silence,
    /// The peer says that it is there, but does not get on.
    Work,
}

impl Patience {
    /// Time that a peer may say nothing.
    pub(crate) const SILENCE: Duration = Duration::from_secs(30);
    /// Time that a peer may take for one answer, while it says that it is there.
    pub(crate) const WORK: Duration = Duration::from_secs(600);

    /// Begins a wait.
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            begun: now,
            heard: now,
            silence: Limit::default(),
            work: Limit::default(),
        }
    }

    /// Notes that the peer said that it is there; returns the limit that its work exceeds.
    pub(crate) fn heard(&mut self, now: Instant) -> Option<Exceeded> {
        self.heard = now;
        self.silence = Limit::default();
        let is_late = now.saturating_duration_since(self.begun) > Self::WORK;
        self.work.is_over(is_late).then_some(Exceeded::Work)
    }

    /// Notes that the peer said nothing; returns the limit that its silence exceeds.
    pub(crate) fn nothing(&mut self, now: Instant) -> Option<Exceeded> {
        let is_late = now.saturating_duration_since(self.heard) > Self::SILENCE;
        self.silence.is_over(is_late).then_some(Exceeded::Silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_peer_is_given_up() {
        let begin = Instant::now();
        let mut patience = Patience::begin(begin);
        let over = (1..60).find(|second| patience.nothing(begin + SECOND * *second).is_some());
        assert_eq!(over, Some(31 + LATE_LOOKS));
        // One word, and the time begins anew.
        assert_eq!(patience.heard(begin + SECOND * 60), None);
        assert_eq!(patience.nothing(begin + SECOND * 90), None);
    }

    #[test]
    fn a_peer_that_only_says_that_it_is_there_is_given_up() {
        let begin = Instant::now();
        let mut patience = Patience::begin(begin);
        let over = (1..2000).find(|second| patience.heard(begin + SECOND * *second).is_some());
        assert_eq!(over, Some(601 + LATE_LOOKS));
        let over = (1..9).map(|_| patience.heard(begin + Patience::WORK * 2));
        assert!(over.flatten().all(|exceeded| exceeded == Exceeded::Work));
    }

    /// What came while this process was stopped is read before the limit counts.
    #[test]
    fn time_in_which_this_process_was_stopped_is_no_silence() {
        let begin = Instant::now();
        let mut patience = Patience::begin(begin);
        let resumed = begin + 40 * SECOND;
        for _ in 0..LATE_LOOKS {
            assert_eq!(patience.nothing(resumed), None);
        }
        assert_eq!(patience.heard(resumed), None);
        assert_eq!(patience.nothing(resumed + SECOND), None);
    }
}
