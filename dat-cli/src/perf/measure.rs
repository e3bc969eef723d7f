//! Keeping a number of operations under way, and what they took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Operations that can be measured: slots of which each has one under way at a time.
pub(crate) trait Measured {
    /// Operations under way at once.
    fn depth(&self) -> usize;
    /// Bytes per operation.
    fn size(&self) -> usize;
    /// Whether the operation itself moves data.
    fn moves_data(&self) -> bool;
    /// Gives the operation that a slot is used for next a number of its own.
    fn prepare(&mut self, slot: usize);
    /// Posts the operation of a slot.
    fn post(&mut self, slot: usize) -> Result<()>;
    /// An operation that is done, if there is one; may sleep a while for it if `wait` is set.
    fn take(&mut self, wait: bool) -> Result<Option<usize>>;
    /// Compares all of the data of every slot that was used.
    fn verify(&mut self) -> Result<()>;
    /// Whether `take` fails by itself when nothing comes for too long.
    fn gives_up(&self) -> bool;
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// After so many operations.
    Operations(u64),
    /// After so long.
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
    /// Quantile and latency, for drawing.
    #[serde(skip)]
    pub(crate) curve: Vec<(f64, u64)>,
}

/// The measurement of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) size: u64,
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Mean time of a post.
    pub(crate) post_ns: f64,
    pub(crate) latency_ns: Latency,
    pub(crate) rate_per_second: f64,
    /// `None` where no data moves.
    pub(crate) bandwidth_bytes_per_second: Option<f64>,
    /// All data was found where it should be; a measurement without that is an error.
    pub(crate) verified: bool,
}

/// Rounds of polling in which nothing comes before a measurement is given up.
const PATIENCE: u32 = 1_000_000;

/// What reading the clock costs.
pub(crate) fn clock_cost() -> Duration {
    const READINGS: u32 = 100_000;
    let begin = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    begin.elapsed() / READINGS
}

/// Measures until the goal is reached; checks all data.
pub(crate) fn run(load: &mut impl Measured, goal: Goal, clock: Duration) -> Result<Point> {
    let depth = load.depth() as u64;
    // Once around every slot, so that all memory was touched.
    drive(load, Goal::Operations(depth), &mut |_| Ok(()), &mut |_| {})?;
    let mut latencies =
        Histogram::<u64>::new(3).map_err(|error| Failure::operation("measuring failed", error))?;
    let mut posting = Duration::ZERO;
    let begin = Instant::now();
    let operations = drive(
        load,
        goal,
        &mut |latency| {
            latencies
                .record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX))
                .map_err(|error| Failure::operation("measuring failed", error))
        },
        &mut |post| posting += post.saturating_sub(clock),
    )?;
    let seconds = begin.elapsed().as_secs_f64();
    load.verify()?;
    let rate = operations as f64 / seconds;
    Ok(Point {
        size: load.size() as u64,
        operations,
        seconds,
        post_ns: posting.as_nanos() as f64 / operations as f64,
        latency_ns: Latency {
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
        },
        rate_per_second: rate,
        bandwidth_bytes_per_second: load.moves_data().then(|| rate * load.size() as f64),
        verified: true,
    })
}

/// Posts and polls until the goal is reached and nothing is under way; the number of operations.
fn drive(
    load: &mut impl Measured,
    goal: Goal,
    completed: &mut impl FnMut(Duration) -> Result<()>,
    posted: &mut impl FnMut(Duration),
) -> Result<u64> {
    let mut free: Vec<usize> = (0..load.depth()).rev().collect();
    let begin = Instant::now();
    let mut started = vec![begin; load.depth()];
    let (mut count, mut now, mut idle) = (0, begin, 0_u32);
    loop {
        let more = |count, now: Instant| match goal {
            Goal::Operations(operations) => count < operations,
            Goal::Time(time) => now - begin < time,
        };
        while more(count, now) {
            let Some(slot) = free.pop() else {
                break;
            };
            load.prepare(slot);
            let before = Instant::now();
            load.post(slot)?;
            now = Instant::now();
            started[slot] = before;
            posted(now - before);
            count += 1;
        }
        idle = idle.saturating_add(1);
        let mut wait = true;
        while let Some(slot) = load.take(wait)? {
            wait = false;
            now = Instant::now();
            completed(now - started[slot])?;
            free.push(slot);
            idle = 0;
        }
        if free.len() == load.depth() && !more(count, now) {
            return Ok(count);
        }
        if idle > PATIENCE && !load.gives_up() {
            return Err(Failure::operation(
                "the measurement stands still",
                "nothing completes any more",
            ));
        }
    }
}
