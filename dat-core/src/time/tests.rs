//! Points in time, and the expiry of timeouts.

use super::{Instant, first};
use crate::flags::TIMEOUT_INFINITE;

/// Spec: GEN-09
#[test]
fn a_timeout_runs_out_so_many_microseconds_later() {
    let now = Instant::from_micros(1_000_007);
    assert_eq!(now.as_micros(), 1_000_007);
    assert_eq!(Instant::ZERO.as_micros(), 0);
    assert_eq!(now.after(0), Some(now));
    assert_eq!(now.after(3).map(Instant::as_micros), Some(1_000_010));
    let longest = TIMEOUT_INFINITE - 1;
    assert_eq!(
        now.after(longest).map(Instant::as_micros),
        Some(1_000_007 + u64::from(longest))
    );
    assert_eq!(now.after(TIMEOUT_INFINITE), None);
    let last = Instant::from_micros(u64::MAX);
    assert_eq!(last.after(1), Some(last), "no time is after the last");
}

#[test]
fn of_two_moments_the_first_comes_first() {
    let [early, late] = [1, 2].map(Instant::from_micros);
    assert_eq!(first(Some(early), Some(late)), Some(early));
    assert_eq!(first(Some(late), Some(early)), Some(early));
    assert_eq!(first(None, Some(late)), Some(late));
    assert_eq!(first(Some(early), None), Some(early));
    assert_eq!(first(None, None), None);
}
