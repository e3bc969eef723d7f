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

/// The silence of a peer in a wait for one answer.
#[derive(Debug)]
pub(crate) struct Patience {
    heard: Instant,
    limit: Limit,
}

impl Patience {
    /// Time that a peer may say nothing.
    pub(crate) const SILENCE: Duration = Duration::from_secs(30);

    /// Begins a wait.
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            heard: now,
            limit: Limit::default(),
        }
    }

    /// Notes that the peer said that it is there.
    pub(crate) fn heard(&mut self, now: Instant) {
        *self = Self::begin(now);
    }

    /// Notes that the peer said nothing; returns true if its silence is too long.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let is_late = now.saturating_duration_since(self.heard) > Self::SILENCE;
        self.limit.is_over(is_late)
    }
}

/// Time that a peer may take for its work, while it says that it is there.
///
/// Waits use it up, and progress gives it back. So a peer that answers each time at the last
/// moment is given up as well.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: Duration,
}

impl Allowance {
    /// Time without any progress.
    const PAUSE: Duration = Duration::from_secs(600);
    /// Bytes per second that are progress enough while data are on their way.
    const TRANSFER: u64 = 64 << 10;
    /// Bytes per second that are progress enough for work that ends with one answer.
    const WORK: u64 = 1_000_000;
    /// Longest time that one look uses up: in a longer one this process was stopped.
    const LOOK: Duration = Duration::from_secs(1);

    /// The time for work that does not depend on a number of bytes.
    pub(crate) const fn new() -> Self {
        Self { left: Self::PAUSE }
    }

    /// The time for work on so many bytes that ends with one answer.
    pub(crate) fn for_work(bytes: u64) -> Self {
        let left = Self::PAUSE + Duration::from_secs(bytes / Self::WORK);
        Self { left }
    }

    /// Notes that so many bytes of a transfer have arrived.
    pub(crate) fn arrived(&mut self, bytes: u64) {
        let more = Duration::from_millis(bytes.saturating_mul(1000) / Self::TRANSFER);
        self.left = self.left.saturating_add(more).min(Self::PAUSE);
    }

    /// Notes a look of this length that found no answer; returns true if no time is left.
    pub(crate) fn is_over_after(&mut self, look: Duration) -> bool {
        self.left = self.left.saturating_sub(look.min(Self::LOOK));
        self.left.is_zero()
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
        let over = (1..60).find(|second| patience.is_over(begin + SECOND * *second));
        assert_eq!(over, Some(31 + LATE_LOOKS));
        // One word, and the time begins anew.
        patience.heard(begin + SECOND * 60);
        assert!(!patience.is_over(begin + SECOND * 90));
    }

    /// Messages that came while this process was stopped are read before the limit counts.
    #[test]
    fn time_in_which_this_process_was_stopped_is_no_silence() {
        let begin = Instant::now();
        let mut patience = Patience::begin(begin);
        let resumed = begin + 40 * SECOND;
        for _ in 0..LATE_LOOKS {
            assert!(!patience.is_over(resumed));
        }
        patience.heard(resumed);
        assert!(!patience.is_over(resumed + SECOND));
    }

    /// Returns the number of looks of one second until an allowance is over.
    fn seconds(mut allowance: Allowance) -> usize {
        let looks = std::iter::repeat_with(|| allowance.is_over_after(SECOND));
        looks.take_while(|is_over| !is_over).count() + 1
    }

    #[test]
    fn a_peer_that_only_says_that_it_is_there_is_given_up() {
        assert_eq!(seconds(Allowance::new()), 600);
        assert_eq!(seconds(Allowance::for_work(0)), 600);
    }

    /// Reading 100 GB back and bringing them to the disk takes longer than ten minutes.
    #[test]
    fn the_time_for_an_answer_grows_with_the_work() {
        assert_eq!(seconds(Allowance::for_work(100_000_000_000)), 100_600);
        // The length may be any number.
        let _any = Allowance::for_work(u64::MAX);
    }

    /// A peer that takes each slot of 1 MiB after nine minutes does not hold a copy for ever.
    #[test]
    fn a_peer_that_answers_at_the_last_moment_is_given_up() {
        let mut allowance = Allowance::new();
        let mut slots = 0;
        while !(0..540).any(|_| allowance.is_over_after(SECOND)) {
            allowance.arrived(1 << 20);
            slots += 1;
        }
        assert_eq!(slots, 1);
    }

    /// No number of slots ends a copy that gets on, and fast ones save no time up for slow ones.
    #[test]
    fn a_slow_peer_that_gets_on_is_not_given_up() {
        let mut allowance = Allowance::new();
        for _ in 0..100_000 {
            assert!(!(0..15).any(|_| allowance.is_over_after(SECOND)));
            allowance.arrived(1 << 20);
        }
        allowance.arrived(u64::MAX);
        assert_eq!(seconds(allowance), 600);
    }

    #[test]
    fn time_in_which_this_process_was_stopped_uses_up_one_second() {
        let mut allowance = Allowance::new();
        assert!(!allowance.is_over_after(SECOND * 10_000));
        assert_eq!(seconds(allowance), 599);
    }
}
