//! Waits on a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dat_core::backend::BackendError;
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::time::Instant;

use crate::hal::{Epoll, EventFd, Wakes};
use crate::signal::{Signal, Source};
use crate::sources::Sources;

/// Numbers of a sleeper's own descriptors; `Source` has the others.
const WAKE: u64 = 3;
const ATTENTION: u64 = 4;

/// No wake is pending, and the thread does not sleep.
const QUIET: u32 = 0;
/// A wake is pending.
const WOKEN: u32 = 1;
/// The thread sleeps, or is about to.
const ASLEEP: u32 = 2;

/// Waker of a thread.
///
/// Raises its descriptor only while the thread sleeps: a thread that polls its completions itself
/// saves the system call.
#[derive(Debug)]
struct SleepWaker {
    state: AtomicU32,
    descriptor: EventFd,
}

impl SleepWaker {
    /// Returns true if the thread may sleep; otherwise consumes the pending wake.
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

    /// Notes that the thread is awake, and drops a pending wake.
    fn forget(&self) {
        self.state.store(QUIET, Ordering::Release);
    }
}

impl Wake for SleepWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            self.descriptor.raise();
        }
    }
}

/// Sleeper on a device, for one thread.
///
/// Sleeps until its waker is used, the device reports completions, or a connection or device event
/// arrives.
///
/// Made by [`VerbsBackend::wait`](crate::VerbsBackend::wait), one for each thread that waits. Its
/// clock is [`ThreadWait::clock`]. Of several sleeping threads, only one is woken for a connection
/// event. It has to call `progress`, as blocking calls of the adapter do.
///
/// Spec: EVW-01, EVW-08, CNW-01
#[derive(Debug)]
pub struct VerbsWait {
    sleep: Arc<SleepWaker>,
    waker: Waker,
    signal: Arc<Signal>,
    epoll: Epoll,
}

impl VerbsWait {
    /// Creates a sleeper that completions wake if it `heeds` them.
    fn new(sources: &Sources, heeds: bool) -> Result<Self, BackendError> {
        let signal = sources.signal();
        let sleep = Arc::new(SleepWaker {
            state: AtomicU32::new(QUIET),
            descriptor: EventFd::new()?,
        });
        let epoll = Epoll::new()?;
        epoll.add(sleep.descriptor.fd(), WAKE, Wakes::All)?;
        epoll.add(signal.attention()?, ATTENTION, Wakes::All)?;
        if heeds {
            let completions = sources.completions()?.fd();
            epoll.add(completions, Source::Completions as u64, Wakes::All)?;
        }
        sources.watch_first(&epoll)?;
        Ok(Self {
            waker: Waker::from(Arc::clone(&sleep)),
            sleep,
            signal: Arc::clone(signal),
            epoll,
        })
    }
}

/// Factory of sleepers, for threads that may come to wait.
///
/// Create a sleeper only for a thread that waits: an unused sleeper receives every event too.
///
/// Made by [`VerbsBackend::waits`](crate::VerbsBackend::waits).
#[derive(Clone, Debug)]
pub struct VerbsWaits {
    pub(crate) sources: Arc<Sources>,
}

impl VerbsWaits {
    /// Creates a sleeper for a thread that waits.
    ///
    /// # Errors
    /// `Descriptors`: no descriptors are left.
    pub fn wait(&self) -> Result<VerbsWait, BackendError> {
        VerbsWait::new(&self.sources, true)
    }

    /// Creates a sleeper for connection and device events, without completions.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn without_completions(&self) -> Result<VerbsWait, BackendError> {
        VerbsWait::new(&self.sources, false)
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
        self.sleep.forget();
    }

    /// Sleeps until `until`, or without limit if it is `None`; a signal interrupts the sleep.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if !self.sleep.may_sleep() {
            return WakeReason::Woken;
        }
        let longest = until.map(|until| {
            let now = ThreadWait::clock().as_micros();
            Duration::from_micros(until.as_micros().saturating_sub(now))
        });
        let happened = self.epoll.wait(longest);
        self.sleep.forget();
        let Ok(happened) = happened else {
            return WakeReason::Interrupted;
        };
        let is_raised = |number: u64| happened & 1 << number != 0;
        if is_raised(ATTENTION) {
            self.signal.note_attention();
        }
        for source in [Source::Connections, Source::Completions] {
            if is_raised(source as u64) {
                self.signal.set_ready(source);
            }
        }
        match until {
            Some(until) if happened == 0 && until <= ThreadWait::clock() => WakeReason::TimedOut,
            _ => WakeReason::Woken,
        }
    }
}

#[cfg(test)]
mod tests;
