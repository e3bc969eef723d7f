//! Waits on a fabric.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use std::task::Wake;

use dat_core::event::{Wait, WakeReason};
use dat_core::time::Instant;
use dat_queues::Arc;

use crate::fabric::Fabric;
use crate::shared::Shared;

#[derive(Debug)]
struct Signal {
    woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if self.shared.is_threaded() {
            self.shared.wake_waiters();
        }
    }
}

/// The wait of a caller on a fabric.
///
/// Without the fabric's own thread, a wait performs actions and advances virtual time; with it, a
/// wait sleeps.
#[derive(Debug)]
pub struct MockWait {
    fabric: Fabric,
    signal: Arc<Signal>,
    waker: Waker,
    seen: u64,
}

impl MockWait {
    /// Makes a wait for this fabric.
    #[must_use]
    pub fn new(fabric: &Fabric) -> Self {
        let signal = Arc::new(Signal {
            woken: AtomicBool::new(false),
            shared: Arc::clone(&fabric.shared),
        });
        Self {
            fabric: fabric.clone(),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
            seen: 0,
        }
    }
}

impl Wait for MockWait {
    fn now(&mut self) -> Instant {
        self.fabric.now()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Performs the next action, or advances time to `until` if that is earlier.
    ///
    /// Returns at once if the waker was used. With the fabric's own thread, it sleeps until a
    /// change is visible; a signal of the system interrupts it. Without that thread, a deadline and
    /// a next action, the wait could never end and is interrupted.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if self.signal.woken.swap(false, Ordering::AcqRel) {
            return WakeReason::Woken;
        }
        if self.fabric.shared.is_threaded() {
            let signal = &self.signal;
            let woken = || signal.woken.swap(false, Ordering::AcqRel);
            let until = until.map(Instant::as_micros);
            let shared = &self.fabric.shared;
            return shared.wait_visible(&mut self.seen, until, woken);
        }
        match (self.fabric.next_due(), until) {
            (Some(due), Some(until)) if due > until => {
                self.fabric.run_until(until);
                WakeReason::TimedOut
            }
            (Some(_), _) => {
                self.fabric.step();
                WakeReason::Woken
            }
            (None, Some(until)) => {
                self.fabric.run_until(until);
                WakeReason::TimedOut
            }
            (None, None) => WakeReason::Interrupted,
        }
    }
}
