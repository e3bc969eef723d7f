//! Waiting on a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dat_core::backend::BackendError;
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::time::Instant;

use crate::hal::{CompletionChannel, EventFd, sleep_on};
use crate::signal::{Signal, Source};

/// Nobody rang, and nobody sleeps.
const QUIET: u32 = 0;
/// Somebody rang.
const RUNG: u32 = 1;
/// The thread sleeps, or is about to.
const ASLEEP: u32 = 2;

/// What wakes a thread. Its descriptor is used only while the thread sleeps: one that takes its completions in itself is not
/// worth a system call.
#[derive(Debug)]
struct Bell {
    state: AtomicU32,
    descriptor: EventFd,
}

impl Bell {
    /// Whether the thread may sleep; else somebody rang, which is known from here on.
    fn may_sleep(&self) -> bool {
        let may = self
            .state
            .compare_exchange(QUIET, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if !may {
            self.forget();
        }
        may
    }

    /// The thread is awake, and knows of what rang before.
    fn forget(&self) {
        self.state.store(QUIET, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            self.descriptor.raise();
        }
    }
}

/// Puts the calling thread to sleep until its waker is used, the device tells of completions, or something else happened
/// on the device or at a peer.
///
/// Made by [`VerbsBackend::wait`](crate::VerbsBackend::wait), one for each thread that waits. Its clock is the one of
/// [`ThreadWait::clock`].
///
/// Spec: EVW-01, EVW-08, CNW-01
#[derive(Debug)]
pub struct VerbsWait {
    bell: Arc<Bell>,
    waker: Waker,
    signal: Arc<Signal>,
    /// None for one that completions leave asleep.
    completions: Option<Arc<CompletionChannel>>,
}

impl VerbsWait {
    pub(crate) fn new(
        signal: &Arc<Signal>,
        completions: Option<&Arc<CompletionChannel>>,
    ) -> Result<Self, BackendError> {
        let bell = Arc::new(Bell {
            state: AtomicU32::new(QUIET),
            descriptor: EventFd::new()?,
        });
        Ok(Self {
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            signal: Arc::clone(signal),
            completions: completions.map(Arc::clone),
        })
    }

    /// One more, for another thread.
    ///
    /// # Errors
    /// `Resources`: out of descriptors.
    pub fn another(&self) -> Result<Self, BackendError> {
        Self::new(&self.signal, self.completions.as_ref())
    }

    /// One more, for a thread that takes in what happens at peers and on the device, and leaves completions to others.
    ///
    /// # Errors
    /// As [`another`](Self::another).
    pub fn without_completions(&self) -> Result<Self, BackendError> {
        Self::new(&self.signal, None)
    }
}

impl Wait for VerbsWait {
    fn now(&mut self) -> Instant {
        ThreadWait::clock()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn begin(&mut self) {
        self.bell.forget();
    }

    /// Sleeps without a limit if there is none; a signal interrupts it.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        const BELL: u32 = 1;
        const ATTENTION: u32 = 2;
        const COMPLETIONS: u32 = 4;
        if !self.bell.may_sleep() {
            return WakeReason::Woken;
        }
        let longest = until.map(|until| {
            let now = ThreadWait::clock().as_micros();
            Duration::from_micros(until.as_micros().saturating_sub(now))
        });
        let watched = [
            self.bell.descriptor.fd(),
            self.signal.attention(),
            // No descriptor is watched in its place.
            self.completions.as_ref().map_or(-1, |channel| channel.fd()),
        ];
        let happened = sleep_on(watched, longest);
        self.bell.forget();
        let Ok(happened) = happened else {
            return WakeReason::Interrupted;
        };
        if happened & BELL != 0 {
            self.bell.descriptor.lower();
        }
        if happened & ATTENTION != 0 {
            self.signal.note_attention();
        }
        if happened & COMPLETIONS != 0 {
            self.signal.set_ready(Source::Completions);
        }
        if happened == 0 {
            WakeReason::TimedOut
        } else {
            WakeReason::Woken
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bell() -> Arc<Bell> {
        Arc::new(Bell {
            state: AtomicU32::new(QUIET),
            descriptor: EventFd::new().expect("a descriptor"),
        })
    }

    /// Whether a sleep on the descriptor alone would end.
    fn would_wake(bell: &Bell) -> bool {
        let descriptor = bell.descriptor.fd();
        sleep_on([descriptor, -1, -1], Some(Duration::ZERO)).expect("no signal") != 0
    }

    /// Spec: EVW-01, EVW-08
    #[test]
    fn a_sleeper_is_woken_through_the_descriptor() {
        let bell = bell();
        assert!(bell.may_sleep());
        Waker::from(Arc::clone(&bell)).wake();
        assert!(would_wake(&bell));
    }

    /// Spec: EVW-01, EVW-08
    #[test]
    fn who_is_awake_is_told_without_the_descriptor_and_does_not_sleep() {
        let bell = bell();
        let waker = Waker::from(Arc::clone(&bell));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(!would_wake(&bell));
        assert!(!bell.may_sleep(), "it rang");
        assert!(bell.may_sleep(), "that is known by now");
        bell.forget();
        waker.wake_by_ref();
        assert!(!would_wake(&bell));
    }

    #[test]
    fn what_rang_before_a_call_does_not_keep_it_awake() {
        let bell = bell();
        bell.wake_by_ref();
        bell.forget();
        assert!(bell.may_sleep());
        assert!(!would_wake(&bell));
    }
}
