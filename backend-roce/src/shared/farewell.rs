//! The end of a process that keeps the objects of its device (ROCE-269).

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::{LINGER, Shared, lock};
use crate::adapter::Adapter;

/// Longest wait for requests that are posted.
const PATIENCE: Duration = Duration::from_secs(2);

/// Request of the ending process to the thread of an adapter.
#[derive(Debug, Default)]
pub(super) struct Farewell {
    is_asked: AtomicBool,
    /// Held for moments only, by the two that it is between.
    is_said: Mutex<bool>,
    said: Condvar,
}

/// How far the thread of an adapter is with the end of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The process goes on.
    #[default]
    None,
    /// Requests are under way; the thread waits for them until then.
    Requests(Instant),
    /// Messages that end connections are to be answered until then.
    Answers(Instant),
    /// All is done.
    Said,
}

impl Stage {
    /// Returns true while something is to be done.
    pub(crate) const fn is_under_way(self) -> bool {
        matches!(self, Self::Requests(_) | Self::Answers(_))
    }
}

impl Shared {
    /// Lets the thread of the adapter end what peers wait for; waits for it, but not for ever.
    ///
    /// The caller may have stopped any call of its thread: it gets no memory, and takes no lock
    /// that such a call holds.
    pub(crate) fn ask_farewell(&self) {
        if self.is_forked() || self.on_deadline.get().is_none() {
            return;
        }
        self.farewell.is_asked.store(true, Ordering::Release);
        self.wake_service();
        let is_said = lock(&self.farewell.is_said);
        let waits = |is_said: &mut bool| !*is_said;
        let waited = (self.farewell.said).wait_timeout_while(is_said, 2 * PATIENCE, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Does what is due of the end of the process; called by the thread of the adapter.
    pub(crate) fn say_farewell(&self, stage: &mut Stage) {
        if !self.farewell.is_asked.load(Ordering::Acquire) || *stage == Stage::Said {
            return;
        }
        let now = Instant::now();
        if *stage == Stage::None {
            *stage = Stage::Requests(now + PATIENCE);
        }
        if let Stage::Requests(end) = *stage
            && (now >= end || !self.enter(|adapter| adapter.has_requests()))
        {
            self.enter(Adapter::leave_peers);
            self.send_pending();
            *stage = Stage::Answers(now + LINGER);
        }
        if let Stage::Answers(end) = *stage
            && (now >= end || !self.enter(|adapter| adapter.is_ending()))
        {
            self.await_sender();
            *stage = Stage::Said;
            *lock(&self.farewell.is_said) = true;
            self.farewell.said.notify_all();
        }
    }
}
