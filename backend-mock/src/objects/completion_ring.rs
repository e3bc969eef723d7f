//! Completion queues of an adapter.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, DeviceFailure};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::Arc;
use crate::steps::step;

/// A completion and its queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) owner: u32,
    pub(crate) completion: Completion,
    /// Immediate data of a receive.
    pub(crate) immediate: Option<u32>,
    /// True for a duplicate or delayed completion, which does not count in the depth.
    ///
    /// Another completion may use its place by then. A completion that is kept back counts.
    pub(crate) extra: bool,
}

/// An entry in a completion queue; the entries of one queue pair are a chain.
#[derive(Debug)]
struct Queued {
    entry: Entry,
    /// Number of the previous entry of the same queue pair; 0 if there was none.
    previous: u64,
}

/// A completion queue in the fabric.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    /// Queued completions, and gaps where completions were forgotten.
    entries: VecDeque<Option<Queued>>,
    /// Number of the first place in `entries`; the places count up.
    first: u64,
    /// Completions in `entries`.
    queued: usize,
    /// Queue pairs whose requests or receives complete here.
    pub(crate) users: IndexSet<u32, FxBuildHasher>,
    depth: usize,
    /// Entries that do not count in the depth.
    extras: usize,
    /// Set if armed; true for solicited completions only.
    pub(crate) armed: Option<bool>,
    pub(crate) failure: Option<DeviceFailure>,
    pub(crate) produced: u32,
    pub(crate) notified: u32,
    /// Completion that is kept back until the next one is delivered.
    pub(crate) kept_back: Option<Entry>,
    /// Number of polls that return an entry or the failure; read without the lock.
    ready: Arc<AtomicUsize>,
}

impl CompletionRing {
    pub(crate) fn new(depth: u32, ready: Arc<AtomicUsize>) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 1,
            queued: 0,
            users: IndexSet::default(),
            depth: depth as usize,
            extras: 0,
            armed: None,
            failure: None,
            produced: 0,
            notified: 0,
            kept_back: None,
            ready,
        }
    }

    pub(crate) fn publish(&self) {
        let ready = self.queued + usize::from(self.failure.is_some());
        self.ready.store(ready, Ordering::Release);
    }

    /// Queues a completion; `last` is the number of its queue pair's last one here.
    pub(crate) fn push(&mut self, entry: Entry, last: Option<&mut u64>) {
        let number = self.first + self.entries.len() as u64;
        let previous = last.map_or(0, |last| core::mem::replace(last, number));
        self.entries.push_back(Some(Queued { entry, previous }));
        self.queued += 1;
        self.extras += usize::from(entry.extra);
    }

    /// Counts a completion that left the queue.
    fn count_out(&mut self, entry: &Entry) {
        self.queued -= 1;
        self.extras -= usize::from(entry.extra);
    }

    pub(crate) fn take(&mut self) -> Result<Option<Entry>, DeviceFailure> {
        let mut entry = None;
        while entry.is_none()
            && let Some(place) = self.entries.pop_front()
        {
            step();
            self.first += 1;
            entry = place.map(|queued| queued.entry);
        }
        if let Some(entry) = &entry {
            self.count_out(entry);
        }
        self.publish();
        match (entry, self.failure) {
            (Some(entry), _) => Ok(Some(entry)),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn arm(&mut self, solicited_only: bool) -> Armed {
        if self.queued > 0 || self.failure.is_some() {
            return Armed::Missed;
        }
        self.armed = Some(solicited_only);
        Armed::Armed
    }

    /// Changes the depth, at least to the number of queued completions.
    pub(crate) fn resize(&mut self, depth: u32) {
        self.depth = self.taken().max(depth as usize);
    }

    /// Returns the number of entries that count in the depth.
    fn taken(&self) -> usize {
        self.queued - self.extras
    }

    pub(crate) fn has_room(&self) -> bool {
        self.taken() < self.depth
    }

    /// Returns true if a completion is kept back.
    pub(crate) fn keeps_back(&self) -> bool {
        self.kept_back.is_some()
    }

    /// Removes the completions of a queue pair, from the one with the number `last` back.
    pub(crate) fn forget(&mut self, owner: u32, last: u64) {
        let mut number = last;
        while let Some(place) = self.place(number)
            && let Some(gone) = place.take_if(|queued| queued.entry.owner == owner)
        {
            self.count_out(&gone.entry);
            number = gone.previous;
        }
        while let Some(None) = self.entries.back() {
            step();
            self.entries.pop_back();
        }
        self.kept_back = self.kept_back.filter(|entry| entry.owner != owner);
        self.publish();
    }

    fn place(&mut self, number: u64) -> Option<&mut Option<Queued>> {
        step();
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// Fails the queue for good; queued completions can still be polled.
    pub(crate) fn fail(&mut self, failure: DeviceFailure) {
        self.failure.get_or_insert(failure);
        self.publish();
    }
}
