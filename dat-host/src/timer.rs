//! Deadlines for drivers that are futures, which have no clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::bell::{Bell, WeakBell};

/// Time that the thread stays without deadlines before it ends.
const IDLE: Duration = Duration::from_secs(1);

struct Timers {
    /// Deadlines, each with the place of its bell.
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    bells: Vec<Option<WeakBell>>,
    /// Set while the thread runs.
    running: bool,
}

static TIMERS: Mutex<Timers> = Mutex::new(Timers {
    queue: BinaryHeap::new(),
    bells: Vec::new(),
    running: false,
});
static CHANGED: Condvar = Condvar::new();

/// Rings `bell` at a time, from a thread that lives as long as there are deadlines.
///
/// # Errors
/// That of the system if it cannot start the thread.
pub(crate) fn ring_at(bell: &Bell, at: Instant) -> std::io::Result<()> {
    let mut timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !timers.running {
        thread::Builder::new()
            .name("dat-host timer".into())
            .spawn(run)?;
        timers.running = true;
    }
    let bell = Some(bell.downgrade());
    let place = match timers.bells.iter().position(Option::is_none) {
        Some(place) => {
            timers.bells[place] = bell;
            place
        }
        None => {
            timers.bells.push(bell);
            timers.bells.len() - 1
        }
    };
    timers.queue.push(Reverse((at, place)));
    CHANGED.notify_one();
    Ok(())
}

fn run() {
    let mut timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let pause = match timers.queue.peek() {
            Some(Reverse((at, _))) if *at <= now => {
                let due = timers.queue.pop();
                let bell = due.and_then(|Reverse((_, place))| timers.bells[place].take());
                drop(timers);
                if let Some(bell) = bell {
                    bell.ring();
                }
                timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            Some(Reverse((at, _))) => at.duration_since(now),
            None => IDLE,
        };
        let (back, outcome) = CHANGED
            .wait_timeout(timers, pause)
            .unwrap_or_else(PoisonError::into_inner);
        timers = back;
        if outcome.timed_out() && timers.queue.is_empty() {
            timers.running = false;
            return;
        }
    }
}
