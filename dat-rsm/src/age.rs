//! Ages of what peers owe, counted in looks.

use dat_core::time::Instant;

use crate::options::Options;

/// Looks in an age limit.
pub(crate) const LOOKS: u32 = 4;

/// Watches something that a peer owes, and that moves on step by step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// True if something was owed at the last look.
    is_owed: bool,
    /// Number of steps done at that look.
    moved: u64,
    /// Looks without a step, and the most that one may take.
    looks: u32,
    most: u32,
}

impl Watch {
    /// Looks; returns true if the peer has done no step for too many looks.
    ///
    /// `most` limits the looks until the next step; it is taken when the wait for that step begins.
    pub(crate) fn is_overdue(&mut self, is_owed: bool, moved: u64, most: u32) -> bool {
        if !(is_owed && self.is_owed && moved == self.moved) {
            *self = Self {
                is_owed,
                moved,
                looks: 0,
                most,
            };
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        self.looks >= self.most
    }
}

/// Returns the microseconds between two looks.
pub(crate) fn period(options: &Options) -> u32 {
    options.connect_timeout.div_ceil(LOOKS).max(1)
}

/// Returns the looks that requests with this number of bytes may take.
pub(crate) fn looks_for(bytes: u64, period: u32) -> u32 {
    let more = bytes.checked_div(u64::from(period)).unwrap_or(0);
    LOOKS.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
}

/// Returns the earlier of two optional times.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMST-06
    #[test]
    fn what_stands_still_is_overdue_and_what_moves_is_not() {
        let mut watch = Watch::default();
        // Idle, then one item that stays. Its limit is that of the time when the wait began.
        assert!(!watch.is_overdue(false, 5, 1));
        for look in 0..LOOKS {
            assert!(!watch.is_overdue(true, 5, LOOKS + look), "{look}");
        }
        assert!(watch.is_overdue(true, 5, 99));
        // Slow steps.
        let mut watch = Watch::default();
        for look in 0..100 {
            assert!(!watch.is_overdue(true, look / 4, LOOKS), "{look}");
        }
        // What is not owed has no age.
        for _ in 0..100 {
            assert!(!watch.is_overdue(false, 5, LOOKS));
        }
        assert!(!watch.is_overdue(true, 5, LOOKS));
        // Many bytes have more time.
        assert_eq!(looks_for(64, 500_000), LOOKS);
        assert_eq!(looks_for(1 << 20, 500_000), LOOKS + 2);
        assert_eq!(looks_for(u64::MAX, 1), u32::MAX);
    }
}
