//! Waiting on a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dat_core::backend::BackendError;
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::time::Instant;

use crate::hal::{Epoll, EventFd, Wakes};
use crate::signal::{Signal, Source, Sources};

/// The numbers of what a sleeper watches beside the sources.
const BELL: u32 = 3;
const ATTENTION: u32 = 4;

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
/// [`ThreadWait::clock`]. Of several threads that sleep one alone is told what happened on the device or at a peer, and
/// has to call `progress`, as blocking calls of the adapter do.
///
/// Spec: EVW-01, EVW-08, CNW-01
#[derive(Debug)]
pub struct VerbsWait {
    bell: Arc<Bell>,
    waker: Waker,
    signal: Arc<Signal>,
    epoll: Epoll,
}

impl VerbsWait {
    /// Completions wake it if it `heeds` them.
    fn new(
        signal: &Arc<Signal>,
        sources: &Arc<Sources>,
        heeds: bool,
    ) -> Result<Self, BackendError> {
        let bell = Arc::new(Bell {
            state: AtomicU32::new(QUIET),
            descriptor: EventFd::new()?,
        });
        let epoll = Epoll::new()?;
        epoll.add(bell.descriptor.fd(), BELL, Wakes::All)?;
        epoll.add(signal.attention(), ATTENTION, Wakes::All)?;
        if heeds {
            let completions = sources.completions();
            epoll.add(completions, Source::Completions as u32, Wakes::All)?;
        }
        sources.watch_first(&epoll)?;
        Ok(Self {
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            signal: Arc::clone(signal),
            epoll,
        })
    }
}

/// Makes something to wait with for each thread that comes to wait: what nobody waits with would be told of all that happens, too.
///
/// Made by [`VerbsBackend::waits`](crate::VerbsBackend::waits).
#[derive(Clone, Debug)]
pub struct VerbsWaits {
    pub(crate) signal: Arc<Signal>,
    pub(crate) sources: Arc<Sources>,
}

impl VerbsWaits {
    /// For a thread that waits.
    ///
    /// # Errors
    /// `Resources`: out of descriptors.
    pub fn wait(&self) -> Result<VerbsWait, BackendError> {
        VerbsWait::new(&self.signal, &self.sources, true)
    }

    /// For a thread that takes in what happens at peers and on the device, and leaves completions to others.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn without_completions(&self) -> Result<VerbsWait, BackendError> {
        VerbsWait::new(&self.signal, &self.sources, false)
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
        if !self.bell.may_sleep() {
            return WakeReason::Woken;
        }
        let longest = until.map(|until| {
            let now = ThreadWait::clock().as_micros();
            Duration::from_micros(until.as_micros().saturating_sub(now))
        });
        let happened = self.epoll.wait(longest);
        self.bell.forget();
        let Ok(happened) = happened else {
            return WakeReason::Interrupted;
        };
        let is_told = |number: u32| happened & 1 << number != 0;
        if is_told(ATTENTION) {
            self.signal.note_attention();
        }
        for source in [Source::Connections, Source::Device, Source::Completions] {
            if is_told(source as u32) {
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
        let epoll = Epoll::new().expect("a descriptor");
        let watched = epoll.add(bell.descriptor.fd(), BELL, Wakes::All);
        watched.expect("watched");
        epoll.wait(Some(Duration::ZERO)).expect("no signal") != 0
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
