//! Times of the transport.

use dat_core::time::Instant;

/// Returns 4.096 µs × 2^`code` in microseconds, rounded up; code 31 is the longest (ROCE-153).
pub const fn coded_time(code: u8) -> u64 {
    let code = if code > 31 { 31 } else { code };
    (4096_u64 << code).div_ceil(1000)
}

/// Returns the time `micros` after `now`.
pub(crate) const fn later(now: Instant, micros: u64) -> Instant {
    Instant::from_micros(now.as_micros().saturating_add(micros))
}

/// The earlier of two times that may be unset.
pub trait Earliest {
    /// Returns the earlier time; an unset one is later than any other.
    fn earliest(self, other: Self) -> Self;
}

impl Earliest for Option<Instant> {
    fn earliest(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        }
    }
}
