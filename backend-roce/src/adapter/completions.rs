//! Completion queues of an adapter.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, DeviceFailure};
use dat_core::flags::DtoStatus;

/// A completion in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The queue pair.
    pub(crate) owner: usize,
    pub(crate) completion: Completion,
    /// Immediate data of a receive.
    pub(crate) immediate: Option<u32>,
}

/// Effect of a new completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The queue was armed for it.
    Notify,
    /// There was no room; the queue failed.
    Overrun,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    entries: VecDeque<Entry>,
    depth: usize,
    /// Set if armed; true for solicited completions only.
    armed: Option<bool>,
    failure: Option<DeviceFailure>,
    /// Queue pairs that complete here.
    pub(crate) users: BTreeSet<usize>,
    /// Number of polls that return an entry or the failure; read without the lock.
    ready: Arc<AtomicUsize>,
}

impl CompletionRing {
    pub(crate) fn new(depth: u32, ready: Arc<AtomicUsize>) -> Self {
        Self {
            entries: VecDeque::new(),
            depth: depth as usize,
            armed: None,
            failure: None,
            users: BTreeSet::new(),
            ready,
        }
    }

    fn publish(&self) {
        let ready = self.entries.len() + usize::from(self.failure.is_some());
        self.ready.store(ready, Ordering::Release);
    }

    pub(crate) fn push(&mut self, entry: Entry) -> Effect {
        if self.failure.is_some() {
            return Effect::None;
        }
        let effect = if self.entries.len() < self.depth {
            self.entries.push_back(entry);
            let Completion {
                solicited, status, ..
            } = entry.completion;
            let notable = solicited || status != DtoStatus::Success;
            match self.armed {
                Some(solicited_only) if notable || !solicited_only => {
                    self.armed = None;
                    Effect::Notify
                }
                _ => Effect::None,
            }
        } else {
            self.failure = Some(DeviceFailure::CompletionQueueOverrun);
            Effect::Overrun
        };
        self.publish();
        effect
    }

    /// Disarms a queue that failed; returns true if it was armed.
    pub(crate) fn disarm(&mut self) -> bool {
        self.armed.take().is_some()
    }

    pub(crate) fn take(&mut self) -> Result<Option<Entry>, DeviceFailure> {
        let entry = self.entries.pop_front();
        self.publish();
        match (entry, self.failure) {
            (None, Some(failure)) => Err(failure),
            (entry, _) => Ok(entry),
        }
    }

    pub(crate) fn arm(&mut self, solicited_only: bool) -> Armed {
        if !self.entries.is_empty() || self.failure.is_some() {
            return Armed::Missed;
        }
        self.armed = Some(solicited_only);
        Armed::Armed
    }

    /// Changes the depth, at least to the number of queued completions.
    pub(crate) fn resize(&mut self, depth: u32) {
        self.depth = self.entries.len().max(depth as usize);
    }

    /// Removes the completions of a queue pair.
    pub(crate) fn forget(&mut self, owner: usize) {
        self.entries.retain(|entry| entry.owner != owner);
        self.publish();
    }
}
