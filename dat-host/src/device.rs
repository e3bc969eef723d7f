//! The side of a backend that wakes an adapter.

use std::time::Duration;

use dat_core::event::Wait;
use dat_core::time::Instant;

use crate::bell::Bell;

/// The wake-ups and the clock of a device, whose backend has the other calls.
///
/// An adapter that has nothing to do sleeps until its [`Bell`] is rung or a deadline passes.
/// [`Polled`] serves every backend; a device with interrupts has less delay.
pub trait Device: Send + Sync + 'static {
    /// Gives the device the bell to ring when it has events.
    fn attach(&self, bell: &Bell);

    /// Lets a device without a thread of its own do what is due at `now`.
    ///
    /// Called by the driver of the adapter, before it polls for events, and without locks.
    fn act(&self, now: Instant) -> Activity {
        let _ = now;
        Activity::default()
    }

    /// Returns true if events ring the bell.
    ///
    /// Otherwise the adapter polls once in a millisecond, except in the device's own sleeper.
    fn rings(&self) -> bool {
        true
    }

    /// Returns a sleeper in which the thread that drives the adapter waits for events of the
    /// device.
    ///
    /// Called by that thread, once: the thread of the adapter, or the caller of
    /// [`Driver::run_until`](crate::Driver::run_until). The device then need not ring for them.
    /// Without a sleeper, the thread sleeps until the bell rings.
    fn wait(&self) -> Option<Box<dyn Wait + Send>> {
        None
    }

    /// Returns true if `act` must be called after a post.
    fn acts_after_posts(&self) -> bool {
        false
    }
}

/// Result of [`Device::act`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Set if the device did something.
    pub acted: bool,
    /// Time of the next call, if nothing else happens first.
    pub next: Option<Instant>,
}

/// A device that is polled at intervals, because nothing reports its events.
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

impl Device for Polled {
    fn attach(&self, _bell: &Bell) {}

    fn act(&self, now: Instant) -> Activity {
        let interval = u64::try_from(self.interval.as_micros()).unwrap_or(u64::MAX);
        Activity {
            acted: false,
            next: Some(Instant::from_micros(
                now.as_micros().saturating_add(interval.max(1)),
            )),
        }
    }
}
