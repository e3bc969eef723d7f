//! Waits in tests: wakers that count, and scripted sleeps.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Wake;
use std::vec::Vec;

use crate::time::Instant;

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct WakeCount(AtomicUsize);

impl WakeCount {
    /// Returns the count and a waker that increments it.
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    /// Returns the number of wake-ups since the last call.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A wait in which no time passes.
///
/// Each sleep runs the next step of a script. After the script, the clock jumps to the deadline.
pub(crate) struct ScriptedWait<'a> {
    pub(crate) now: Instant,
    pub(crate) steps: VecDeque<std::boxed::Box<dyn FnMut() + 'a>>,
    /// Set if the sleep after the script is interrupted.
    pub(crate) interrupted: bool,
    /// Deadlines of the sleeps.
    pub(crate) asked: Vec<Option<Instant>>,
}

impl<'a> ScriptedWait<'a> {
    pub(crate) fn at(now: u64) -> Self {
        Self {
            now: Instant::from_micros(now),
            steps: VecDeque::new(),
            interrupted: false,
            asked: Vec::new(),
        }
    }

    pub(crate) fn then(mut self, step: impl FnMut() + 'a) -> Self {
        self.steps.push_back(std::boxed::Box::new(step));
        self
    }
}

impl crate::event::Wait for ScriptedWait<'_> {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> crate::event::WakeReason {
        use crate::event::WakeReason;
        self.asked.push(until);
        if let Some(mut step) = self.steps.pop_front() {
            step();
            return WakeReason::Woken;
        }
        if self.interrupted {
            return WakeReason::Interrupted;
        }
        let until = until.expect("a wait without end and without a script");
        self.now = self.now.max(until);
        WakeReason::TimedOut
    }
}
