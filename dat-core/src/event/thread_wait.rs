//! Sleeping for threads of a host.

use core::task::Waker;
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Duration;

use super::wait::{Wait, WakeReason};
use crate::time::Instant;

/// Parks the thread that made it; its clock is the host's monotonic one.
///
/// A device without interrupts, or one whose interrupts wake another thread, tells nobody of
/// completions: so a sleep never lasts longer than a slice, after which the caller looks again.
#[derive(Debug)]
pub struct ThreadWait {
    waker: Waker,
    slice: Duration,
}

/// Wakes one thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

impl ThreadWait {
    /// For the current thread, with slices of a millisecond.
    pub fn new() -> Self {
        Self::with_slice(Duration::from_millis(1))
    }

    /// For the current thread; `slice` is the longest sleep without a look at the device.
    pub fn with_slice(slice: Duration) -> Self {
        Self {
            waker: Waker::from(Arc::new(Unpark(thread::current()))),
            slice,
        }
    }

    /// The time now, for calls that take one; all threads of the process share the clock.
    pub fn clock() -> Instant {
        static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();
        let elapsed = EPOCH.get_or_init(std::time::Instant::now).elapsed();
        Instant::from_micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Default for ThreadWait {
    fn default() -> Self {
        Self::new()
    }
}

impl Wait for ThreadWait {
    fn now(&mut self) -> Instant {
        Self::clock()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let left = until.map(|until| {
            let micros = until.as_micros().saturating_sub(Self::clock().as_micros());
            Duration::from_micros(micros)
        });
        thread::park_timeout(left.map_or(self.slice, |left| left.min(self.slice)));
        match until {
            Some(until) if until <= Self::clock() => WakeReason::TimedOut,
            _ => WakeReason::Woken,
        }
    }
}
