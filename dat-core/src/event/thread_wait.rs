//! Blocking of host threads.

use core::task::Waker;
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Duration;

use super::wait::{Wait, WakeReason};
use crate::time::Instant;

/// Parks the thread that created it; uses the host's monotonic clock.
///
/// A signal of the system does not interrupt it. [`Sleepers`](super::Sleepers) are for waits that
/// signals interrupt.
///
/// The device decides how long one sleep may be. If its interrupts reach
/// [`InterruptHandle::notify`](crate::InterruptHandle::notify), they wake the thread. Use
/// [`until_woken`](Self::until_woken) then: a sleep has no limit, for any number of threads that
/// wait on the adapter. If the device must be polled, it announces no completions. A sleep then
/// ends after one slice at the latest, and the caller polls again.
#[derive(Debug)]
pub struct ThreadWait {
    waker: Waker,
    slice: Option<Duration>,
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
    /// Creates a wait for the current thread and any device, with slices of 1 ms.
    pub fn new() -> Self {
        Self::with_slice(Duration::from_millis(1))
    }

    /// Creates a wait for the current thread and any device, with sleeps of at most `slice`.
    pub fn with_slice(slice: Duration) -> Self {
        Self::sleeping(Some(slice))
    }

    /// Creates a wait for the current thread and a device whose interrupts reach
    /// `InterruptHandle::notify`.
    pub fn until_woken() -> Self {
        Self::sleeping(None)
    }

    fn sleeping(slice: Option<Duration>) -> Self {
        Self {
            waker: Waker::from(Arc::new(Unpark(thread::current()))),
            slice,
        }
    }

    /// Returns the current time; all threads of the process share the clock.
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
        match (left, self.slice) {
            (Some(left), Some(slice)) => thread::park_timeout(left.min(slice)),
            (Some(sleep), None) | (None, Some(sleep)) => thread::park_timeout(sleep),
            (None, None) => thread::park(),
        }
        match until {
            Some(until) if until <= Self::clock() => WakeReason::TimedOut,
            _ => WakeReason::Woken,
        }
    }
}
