//! Waits of callers on an adapter with a thread.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::task::Wake;

use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::time::Instant;

use crate::shared::Shared;

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
        self.shared.wake_sleepers();
    }
}

/// The wait of a caller, which sleeps until the adapter has events or is closed.
///
/// A signal of the system interrupts it. So may a stop of the process (`SIGSTOP`, a debugger).
pub struct RoceWait {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    waker: Waker,
    seen: u64,
}

impl RoceWait {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let signal = Arc::new(Signal {
            woken: AtomicBool::new(false),
            shared: Arc::clone(shared),
        });
        Self {
            shared: Arc::clone(shared),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
            seen: 0,
        }
    }
}

impl Wait for RoceWait {
    fn now(&mut self) -> Instant {
        ThreadWait::clock()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let pause = until.map(|until| {
            let now = ThreadWait::clock().as_micros();
            Duration::from_micros(until.as_micros().saturating_sub(now))
        });
        let signal = &self.signal;
        let woken = || signal.woken.swap(false, Ordering::AcqRel);
        self.shared.sleep(&mut self.seen, pause, woken)
    }
}
