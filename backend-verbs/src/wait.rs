//! Waiting on a device.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use dat_core::backend::BackendError;
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::time::Instant;

use crate::hal::{CompletionChannel, EventFd, sleep_on};
use crate::signal::{Signal, Source};

#[derive(Debug)]
struct Bell(EventFd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.raise();
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
    completions: Arc<CompletionChannel>,
}

impl VerbsWait {
    pub(crate) fn new(
        signal: &Arc<Signal>,
        completions: &Arc<CompletionChannel>,
    ) -> Result<Self, BackendError> {
        let bell = Arc::new(Bell(EventFd::new()?));
        Ok(Self {
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            signal: Arc::clone(signal),
            completions: Arc::clone(completions),
        })
    }
}

impl Wait for VerbsWait {
    fn now(&mut self) -> Instant {
        ThreadWait::clock()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Sleeps without a limit if there is none; a signal interrupts it.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        const BELL: u32 = 1;
        const ATTENTION: u32 = 2;
        const COMPLETIONS: u32 = 4;
        let longest = until.map(|until| {
            let now = ThreadWait::clock().as_micros();
            Duration::from_micros(until.as_micros().saturating_sub(now))
        });
        let watched = [
            self.bell.0.fd(),
            self.signal.attention(),
            self.completions.fd(),
        ];
        let Ok(happened) = sleep_on(watched, longest) else {
            return WakeReason::Interrupted;
        };
        if happened & BELL != 0 {
            self.bell.0.lower();
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
