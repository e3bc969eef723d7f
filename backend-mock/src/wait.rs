//! Waiting for a fabric.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use dat_core::time::Instant;

use crate::fabric::{Fabric, Shared};

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

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Something happened.
    Woken,
    /// The moment came.
    TimedOut,
    /// Nothing will ever happen.
    Interrupted,
}

/// Lets a caller wait for events of a fabric.
///
/// Without a thread of the fabric, waiting performs its actions and moves virtual time; with one, it sleeps.
#[derive(Debug)]
pub struct MockWait {
    fabric: Fabric,
    signal: Arc<Signal>,
    waker: Waker,
    seen: u64,
}

impl MockWait {
    /// A waiter for this fabric.
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

    /// The time of the fabric.
    pub fn now(&mut self) -> Instant {
        self.fabric.now()
    }

    /// Ends a wait, the current one or the next.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Waits until something happens, but not beyond `until`.
    pub fn wait(&mut self, until: Option<Instant>) -> Waited {
        if self.signal.woken.swap(false, Ordering::AcqRel) {
            return Waited::Woken;
        }
        if self.fabric.shared.is_threaded() {
            let signal = &self.signal;
            let woken = || signal.woken.swap(false, Ordering::AcqRel);
            let until = until.map(Instant::as_micros);
            return if self
                .fabric
                .shared
                .wait_visible(&mut self.seen, until, woken)
            {
                Waited::Woken
            } else {
                Waited::TimedOut
            };
        }
        match (self.fabric.next_due(), until) {
            (Some(due), Some(until)) if due > until => {
                self.fabric.run_until(until);
                Waited::TimedOut
            }
            (Some(_), _) => {
                self.fabric.step();
                Waited::Woken
            }
            (None, Some(until)) => {
                self.fabric.run_until(until);
                Waited::TimedOut
            }
            (None, None) => Waited::Interrupted,
        }
    }
}
