//! Deadlines for drivers that are futures, which have no clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dat_core::time::Instant as Time;
use dat_storage::forks::PerProcess;

use super::driver_wakers::{DriverWakers, WeakDriverWakers};
use crate::lock::lock;

/// Time that the thread stays without deadlines before it ends.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Timers {
    /// Deadlines, each with the index of those that it wakes.
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    drivers: Vec<Option<WeakDriverWakers>>,
    /// Set while the thread runs.
    running: bool,
}

/// The deadlines of a process, and the condition that they changed.
///
/// A child of `fork` has none of its parent's, and no thread for them.
static TIMERS: PerProcess<(Mutex<Timers>, Condvar)> = PerProcess::new();

/// Times at which the timer wakes the drivers of an adapter, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Armed(Vec<Time>);

impl Armed {
    /// Returns true if the drivers are woken by `next`; forgets the times up to `now`.
    ///
    /// A driver that wakes up arms the timer again, so one wake-up by `next` suffices.
    pub(crate) fn is_woken_by(&mut self, next: Time, now: Time) -> bool {
        while self.0.last().is_some_and(|&armed| armed <= now) {
            self.0.pop();
        }
        self.0.last().is_some_and(|&armed| armed <= next)
    }

    /// Adds a time before which the drivers are not woken.
    pub(crate) fn add(&mut self, next: Time) {
        self.0.push(next);
    }
}

/// Wakes drivers at a time, from a thread that lives as long as there are deadlines.
///
/// # Errors
/// The system's error if it cannot start the thread.
pub(crate) fn wake_at(drivers: &DriverWakers, at: Instant) -> std::io::Result<()> {
    let (timers, changed) = TIMERS.this();
    let mut timers = lock(timers);
    if !timers.running {
        thread::Builder::new()
            .name("dat-host timer".into())
            .spawn(run)?;
        timers.running = true;
    }
    let drivers = Some(drivers.downgrade());
    let index = match timers.drivers.iter().position(Option::is_none) {
        Some(index) => {
            timers.drivers[index] = drivers;
            index
        }
        None => {
            timers.drivers.push(drivers);
            timers.drivers.len() - 1
        }
    };
    timers.queue.push(Reverse((at, index)));
    changed.notify_one();
    Ok(())
}

fn run() {
    let (all, changed) = TIMERS.this();
    let mut timers = lock(all);
    loop {
        let now = Instant::now();
        let pause = match timers.queue.peek() {
            Some(Reverse((at, _))) if *at <= now => {
                let due = timers.queue.pop();
                let drivers = due.and_then(|Reverse((_, index))| timers.drivers[index].take());
                drop(timers);
                if let Some(drivers) = drivers {
                    drivers.wake_all();
                }
                timers = lock(all);
                continue;
            }
            Some(Reverse((at, _))) => at.duration_since(now),
            None => IDLE,
        };
        let (back, outcome) = changed
            .wait_timeout(timers, pause)
            .unwrap_or_else(PoisonError::into_inner);
        timers = back;
        if outcome.timed_out() && timers.queue.is_empty() {
            timers.running = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waker_that_panics_stops_no_other_deadline() {
        let (wrong, right) = (DriverWakers::new(), DriverWakers::new());
        let count = Arc::<Count>::default();
        wrong.add(&Waker::from(Arc::new(Panics)));
        right.add(&Waker::from(Arc::clone(&count)));
        let start = Instant::now();
        wake_at(&wrong, start).unwrap();
        wake_at(&right, start + Duration::from_millis(50)).unwrap();
        while count.0.load(Ordering::SeqCst) == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the drivers are woken"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_time_is_armed_once() {
        let mut armed = Armed::default();
        let at = Time::from_micros;
        let mut count = 0;
        let mut arm = |next, now| {
            if !armed.is_woken_by(at(next), at(now)) {
                armed.add(at(next));
                count += 1;
            }
            count
        };
        assert_eq!(arm(1000, 0), 1);
        // An earlier deadline comes and passes, again and again; the later one stays armed.
        for round in 1..=10 {
            assert_eq!(arm(round * 10 + 5, round * 10), 1 + round);
            assert_eq!(arm(1000, round * 10 + 6), 1 + round);
        }
        assert_eq!(arm(2000, 500), 11, "the wake-up at 1000 arms it");
        assert_eq!(arm(2000, 1000), 12);
    }
}
