//! Drivers of backends, without their types.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dat_core::backend::{Activity, BackendError, Count, HostDriver, NotLocal};
use dat_core::event::{ThreadWait, Wait};
use dat_core::time::Instant;

use super::driver_wakers::DriverWakers;

/// The driver of any backend; each call is that of [`HostDriver`].
pub(crate) trait Device: Send + Sync {
    /// Returns `None` if no thread can sleep on the device.
    fn wait(&self) -> Option<Box<dyn Wait + Send>>;
    fn now(&self) -> Instant;
    fn wake_on_events(&self, waker: Waker) -> bool;
    fn before_sleep(&self) -> bool;
    fn act(&self, now: Instant) -> Activity;
    fn acts_after_posts(&self) -> bool;
    fn counts(&self) -> Vec<(Count, u64)>;
    fn refused_send(&self) -> Option<std::io::Error>;
    fn not_local(&self) -> Option<NotLocal>;
}

impl<D: HostDriver> Device for D {
    fn wait(&self) -> Option<Box<dyn Wait + Send>> {
        let wait = HostDriver::wait(self).ok()?;
        Some(Box::new(wait))
    }

    fn now(&self) -> Instant {
        HostDriver::now(self)
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        HostDriver::wake_on_events(self, waker)
    }

    fn before_sleep(&self) -> bool {
        HostDriver::before_sleep(self)
    }

    fn act(&self, now: Instant) -> Activity {
        HostDriver::act(self, now)
    }

    fn acts_after_posts(&self) -> bool {
        HostDriver::acts_after_posts(self)
    }

    fn counts(&self) -> Vec<(Count, u64)> {
        let mut counts = Vec::new();
        HostDriver::counts(self, &mut |count, value| counts.push((count, value)));
        counts
    }

    fn refused_send(&self) -> Option<std::io::Error> {
        HostDriver::refused_send(self)
    }

    fn not_local(&self) -> Option<NotLocal> {
        HostDriver::not_local(self)
    }
}

/// Wakes the drivers for events of a device, unless a thread sleeps on the device itself.
pub(crate) struct Notice {
    drivers: DriverWakers,
    /// Set while a thread sleeps on the device, which wakes it.
    pub(crate) sleeps: AtomicBool,
}

impl Notice {
    pub(crate) fn new(drivers: &DriverWakers) -> Arc<Self> {
        Arc::new(Self {
            drivers: drivers.clone(),
            sleeps: AtomicBool::new(false),
        })
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.sleeps.load(Ordering::Relaxed) {
            self.drivers.wake_all();
        }
    }
}

/// A driver for backends that report no events: they are polled at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    interval: Duration,
}

impl Polled {
    /// Polls the device once in each `interval` while its adapter is open.
    pub const fn every(interval: Duration) -> Self {
        Self { interval }
    }
}

impl Default for Polled {
    /// Polls once in a millisecond.
    fn default() -> Self {
        Self::every(Duration::from_millis(1))
    }
}

impl HostDriver for Polled {
    type Wait = ThreadWait;

    fn wait(&self) -> Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    /// Returns true: `act` names the time of each look.
    fn wake_on_events(&self, _waker: Waker) -> bool {
        true
    }

    fn act(&self, now: Instant) -> Activity {
        let interval = u64::try_from(self.interval.as_micros()).unwrap_or(u64::MAX);
        let next = now.as_micros().saturating_add(interval.max(1));
        Activity {
            acted: false,
            next: Some(Instant::from_micros(next)),
        }
    }
}
