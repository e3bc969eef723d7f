//! Keeps a number of operations under way, and measures their times.

use std::time::{Duration, Instant};

use dat_core::backend::HostBackend;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::Load;
use crate::failure::{Failure, Result};

/// The end of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Ends after this many operations.
    Operations(u64),
    /// Ends after this time.
    Time(Duration),
}

/// Latencies in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
    pub(crate) mean: f64,
    /// Quantiles and latencies, for drawing.
    #[serde(skip)]
    pub(crate) curve: Vec<(f64, u64)>,
}

impl Latency {
    /// Evaluates the recorded latencies.
    pub(crate) fn of(latencies: &Histogram<u64>) -> Self {
        Self {
            min: latencies.min(),
            p50: latencies.value_at_quantile(0.5),
            p90: latencies.value_at_quantile(0.9),
            p99: latencies.value_at_quantile(0.99),
            p99_9: latencies.value_at_quantile(0.999),
            max: latencies.max(),
            mean: latencies.mean(),
            curve: latencies
                .iter_quantiles(4)
                .map(|value| (value.quantile(), value.value_iterated_to()))
                .collect(),
        }
    }
}

/// The measurement of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) size: u64,
    pub(crate) operations: u64,
    /// Operations whose post and latency were timed.
    pub(crate) timed: u64,
    /// True if not all operations were timed.
    pub(crate) sampled: bool,
    pub(crate) seconds: f64,
    /// Median time of a post; an interrupted post would distort the mean of a few.
    pub(crate) post_ns: f64,
    pub(crate) latency_ns: Latency,
    pub(crate) rate_per_second: f64,
    /// `None` where no data moves.
    pub(crate) bandwidth_bytes_per_second: Option<f64>,
    /// Always true: a measurement whose data does not arrive is an error.
    pub(crate) verified: bool,
}

impl Point {
    /// Returns N if about one of N operations was timed, or `None` if all were.
    ///
    /// N is an average, because the timed operations are chosen without a pattern.
    pub(crate) fn one_of(&self) -> Option<u64> {
        let rounded = (self.operations + self.timed / 2) / self.timed.max(1);
        self.sampled.then_some(rounded.max(2))
    }
}

/// Returns the cost of reading the clock.
///
/// It is the median of many short loops, because any of them may be interrupted.
pub(crate) fn clock_cost() -> Duration {
    const LOOKS: usize = 101;
    const READINGS: u32 = 1000;
    let mut looks = [Duration::ZERO; LOOKS];
    for look in &mut looks {
        let begin = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        *look = begin.elapsed();
    }
    looks.sort_unstable();
    looks[LOOKS / 2] / READINGS
}

/// Minimum operations of the second trial, which estimates the time of one.
///
/// With `LONG_TRIAL` operations, everything that the measurement uses has been used before.
const TRIAL: u64 = 16;
const LONG_TRIAL: u64 = 512;
/// Rounds over all slots in the second trial, unless they exceed `LONGEST_TRIAL`.
const LAPS: u64 = 8;
const LONGEST_TRIAL: Duration = Duration::from_millis(50);
/// Minimum number of timed operations, if a goal has that many.
const LEAST_TIMED: u64 = 16;
/// Maximum stride: one of at most this many operations is timed.
const RAREST: u64 = 64;
/// Timing may slow operations by at most one part in this many.
const PRECISION: u32 = 8000;
/// Cost of timing an operation, in clock readings: three readings and the arithmetic.
const READINGS: u32 = 5;

/// Returns N so that timing one of N operations keeps to [`PRECISION`].
///
/// An operation takes `each`, and a clock reading takes `clock`.
fn stride(each: Duration, clock: Duration, goal: Goal) -> u64 {
    let timing = clock.saturating_mul(READINGS).saturating_mul(PRECISION);
    let stride = timing.as_nanos() / each.as_nanos().max(1);
    let rarest = match goal {
        Goal::Operations(operations) => RAREST.min(operations / LEAST_TIMED),
        Goal::Time(_) => RAREST,
    };
    u64::try_from(stride).unwrap_or(u64::MAX).min(rarest).max(1)
}

/// Chooses the operations to time: the first, then one of `stride` on average.
///
/// The choice has no pattern that could coincide with that of the slots.
struct Choice {
    stride: u64,
    left: u64,
    state: u64,
}

impl Choice {
    fn one_of(stride: u64) -> Self {
        Self {
            stride,
            left: 0,
            state: 1,
        }
    }

    #[inline]
    fn is_next(&mut self) -> bool {
        if self.left != 0 {
            self.left -= 1;
            return false;
        }
        self.choose();
        true
    }

    fn choose(&mut self) {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.left = (self.state >> 33) % (2 * self.stride - 1);
    }
}

/// The times recorded in a measurement.
struct Watch {
    choice: Choice,
    /// Cost of reading the clock.
    clock: Duration,
    latencies: Histogram<u64>,
    posts: Histogram<u64>,
}

impl Watch {
    fn new(clock: Duration) -> Result<Self> {
        Ok(Self {
            choice: Choice::one_of(1),
            clock,
            latencies: histogram()?,
            posts: histogram()?,
        })
    }

    /// Records the time of a call that posted this many operations.
    fn posted(&mut self, taken: Duration, operations: usize) -> Result<()> {
        let taken = taken.saturating_sub(self.clock);
        let each = taken / u32::try_from(operations.max(1)).unwrap_or(u32::MAX);
        record(&mut self.posts, each)
    }

    fn completed(&mut self, taken: Duration) -> Result<()> {
        record(&mut self.latencies, taken)
    }

    /// Returns the average time of an operation.
    fn trial<B: HostBackend>(
        &mut self,
        load: &mut Load<'_, B>,
        operations: u64,
    ) -> Result<Duration> {
        let begin = Instant::now();
        drive(load, Goal::Operations(operations), self)?;
        Ok(begin.elapsed() / u32::try_from(operations).unwrap_or(u32::MAX))
    }
}

/// Returns an empty histogram of times, with three exact digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new(3).map_err(|error| Failure::operation("measuring failed", error))
}

/// Records a time.
pub(crate) fn record(times: &mut Histogram<u64>, taken: Duration) -> Result<()> {
    times
        .record(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX))
        .map_err(|error| Failure::operation("measuring failed", error))
}

/// Measures until the goal is reached, then checks all data.
pub(crate) fn run<B: HostBackend>(
    load: &mut Load<'_, B>,
    goal: Goal,
    clock: Duration,
) -> Result<Point> {
    let depth = load.depth() as u64;
    let mut watch = Watch::new(clock)?;
    // Warms up: uses every slot, then goes several times around the device's queues while that is
    // quick. The first use of memory is slow.
    let mut each = watch.trial(load, depth)?;
    let again = u128::from(LONG_TRIAL.max(LAPS * depth))
        .min(LONGEST_TRIAL.as_nanos() / each.as_nanos().max(1));
    let again = u64::try_from(again).unwrap_or(u64::MAX).max(TRIAL);
    if again > depth {
        each = watch.trial(load, again)?;
    }
    watch.latencies.reset();
    watch.posts.reset();
    watch.choice = Choice::one_of(stride(each, clock, goal));
    let begin = Instant::now();
    let operations = drive(load, goal, &mut watch)?;
    let seconds = begin.elapsed().as_secs_f64();
    load.verify()?;
    let Watch {
        latencies, posts, ..
    } = watch;
    let rate = operations as f64 / seconds;
    let timed = latencies.len();
    Ok(Point {
        size: load.size() as u64,
        operations,
        timed,
        sampled: timed < operations,
        seconds,
        post_ns: posts.value_at_quantile(0.5) as f64,
        latency_ns: Latency::of(&latencies),
        rate_per_second: rate,
        bandwidth_bytes_per_second: load.moves_data().then(|| rate * load.size() as f64),
        verified: true,
    })
}

/// Posts and polls until the goal is reached and no operation is under way.
///
/// Returns the number of operations.
fn drive<B: HostBackend>(load: &mut Load<'_, B>, goal: Goal, watch: &mut Watch) -> Result<u64> {
    let depth = load.depth();
    let mut free: Vec<usize> = (0..depth).rev().collect();
    let begin = Instant::now();
    let (mut started, mut timed) = (vec![None; depth], 0_usize);
    let batch = load.batch();
    // With a goal of time, `now` advances at timed operations only.
    let (mut count, mut now) = (0, begin);
    loop {
        let more = |count, now: Instant| match goal {
            Goal::Operations(operations) => count < operations,
            Goal::Time(time) => now - begin < time,
        };
        while more(count, now) {
            // All batches have the full size, except perhaps the last.
            let size = match goal {
                Goal::Operations(operations) => {
                    batch.min(usize::try_from(operations - count).unwrap_or(batch))
                }
                Goal::Time(_) => batch,
            };
            let Some(left) = free.len().checked_sub(size) else {
                break;
            };
            let slots = &free[left..];
            slots.iter().for_each(|slot| load.prepare(*slot));
            let before = watch.choice.is_next().then(Instant::now);
            match slots {
                [slot] => load.post(*slot)?,
                slots => load.post_together(slots)?,
            }
            if let Some(before) = before {
                now = Instant::now();
                started[slots[0]] = Some(before);
                timed += 1;
                watch.posted(now - before, size)?;
            }
            free.truncate(left);
            count += size as u64;
        }
        let mut wait = true;
        while free.len() < depth
            && let Some(slot) = load.take(wait)?
        {
            wait = false;
            if timed != 0
                && let Some(start) = started[slot].take()
            {
                now = Instant::now();
                timed -= 1;
                watch.completed(now - start)?;
            }
            free.push(slot);
        }
        if free.len() == depth && !more(count, now) {
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_as_often_as_possible() {
        let (nanos, any) = (Duration::from_nanos, Goal::Time(Duration::from_secs(1)));
        assert_eq!(stride(nanos(1_000_000), nanos(20), any), 1);
        assert_eq!(stride(nanos(100_000), nanos(100), any), 40);
        assert_eq!(stride(nanos(10), nanos(100), any), RAREST);
        assert_eq!(stride(Duration::ZERO, nanos(100), any), RAREST);
        assert_eq!(stride(nanos(10), Duration::ZERO, any), 1);
        for (operations, expected) in [(1, 1), (31, 1), (32, 2), (500, 31), (1 << 20, RAREST)] {
            let goal = Goal::Operations(operations);
            assert_eq!(
                stride(nanos(10), nanos(100), goal),
                expected,
                "{operations}"
            );
        }
    }

    #[test]
    fn the_number_of_timed_operations_is_rounded() {
        let point = |operations, timed| Point {
            size: 1,
            operations,
            timed,
            sampled: timed < operations,
            seconds: 1.0,
            post_ns: 1.0,
            latency_ns: Latency::of(&histogram().unwrap()),
            rate_per_second: 1.0,
            bandwidth_bytes_per_second: None,
            verified: true,
        };
        assert_eq!(point(100, 100).one_of(), None);
        assert_eq!(point(100, 99).one_of(), Some(2));
        assert_eq!(point(1001, 63).one_of(), Some(16));
        assert_eq!(point(5, 0).one_of(), Some(5));
    }

    #[test]
    fn one_interrupted_post_does_not_change_the_result() {
        let nanos = Duration::from_nanos;
        let mut watch = Watch::new(nanos(20)).unwrap();
        for taken in [100, 98, 400_000, 102, 5] {
            watch.posted(nanos(taken), 1).unwrap();
        }
        assert_eq!(watch.posts.value_at_quantile(0.5), 80);
        watch.posts.reset();
        // The clock was read once for the whole batch.
        watch.posted(nanos(420), 4).unwrap();
        assert_eq!(watch.posts.value_at_quantile(0.5), 100);
    }

    #[test]
    fn timed_operations_are_spread_over_all_slots() {
        for stride in [1, 2, 16, 64] {
            let mut choice = Choice::one_of(stride);
            let chosen: Vec<usize> = (0..100_000).filter(|_| choice.is_next()).collect();
            assert_eq!(chosen.first(), Some(&0));
            let expected = 100_000 / stride as usize;
            assert!(
                (expected * 9 / 10..=expected * 11 / 10).contains(&chosen.len()),
                "{} of {stride}",
                chosen.len()
            );
            let mut slots: Vec<usize> = chosen.iter().map(|number| number % 16).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 16);
        }
    }
}
