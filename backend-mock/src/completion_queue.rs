//! Completion queues.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, CompletionQueue, ControlEvent, DeviceFailure};
use dat_core::flags::DtoStatus;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::fault::CompletionFault;
use crate::shared::{Arc, Shared};
use crate::steps::step;
use crate::world::{Action, World};

/// Microseconds after which a completion that is kept back is delivered.
const KEPT_BACK: u64 = 1000;

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
    extra: bool,
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
    armed: Option<bool>,
    failure: Option<DeviceFailure>,
    pub(crate) produced: u32,
    pub(crate) notified: u32,
    /// Completion that is kept back until the next one is delivered.
    kept_back: Option<Entry>,
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

    fn publish(&self) {
        let ready = self.queued + usize::from(self.failure.is_some());
        self.ready.store(ready, Ordering::Release);
    }

    /// Queues a completion; `last` is the number of its queue pair's last one here.
    fn push(&mut self, entry: Entry, last: Option<&mut u64>) {
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

    fn take(&mut self) -> Result<Option<Entry>, DeviceFailure> {
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

    fn arm(&mut self, solicited_only: bool) -> Armed {
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

    fn has_room(&self) -> bool {
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

impl World {
    /// Delivers a completion, or applies the planned fault to it.
    pub(crate) fn add_completion(
        &mut self,
        adapter: usize,
        queue: Option<u32>,
        owner: u32,
        completion: Completion,
        immediate: Option<u32>,
    ) {
        let Some(number) = queue else {
            return;
        };
        let Some(ring) = self.adapters[adapter].completion_queue(number) else {
            return;
        };
        let count = ring.produced;
        ring.produced = count.wrapping_add(1);
        let entry = Entry {
            owner,
            completion,
            immediate,
            extra: false,
        };
        let extra = Entry {
            extra: true,
            ..entry
        };
        let fault = self.faults.completion((adapter as u16, number), count);
        if fault.is_some() {
            let end = self.connection_end(owner);
            self.faults.note_connection(end);
        }
        match fault {
            None => self.queue_entry(adapter, number, entry),
            Some(CompletionFault::Drop) => {}
            Some(CompletionFault::Duplicate) => {
                self.queue_entry(adapter, number, entry);
                self.queue_entry(adapter, number, extra);
            }
            Some(CompletionFault::Delay(by)) => {
                let action = Action::Deliver {
                    adapter,
                    number,
                    entry: extra,
                };
                self.schedule
                    .add(self.now.saturating_add(u64::from(by)), 0, action);
            }
            Some(CompletionFault::Reorder) => self.keep_back(adapter, number, entry),
            Some(CompletionFault::Overrun) => self.overrun(adapter, number),
        }
    }

    /// Keeps back a completion until the next one overtakes it, or its time is over.
    ///
    /// If one is already kept back, this one overtakes it.
    fn keep_back(&mut self, adapter: usize, number: u32, entry: Entry) {
        match self.adapters[adapter].completion_queue(number) {
            Some(ring) if ring.kept_back.is_none() => {
                ring.kept_back = Some(entry);
                let action = Action::Release { adapter, number };
                self.schedule
                    .add(self.now.saturating_add(KEPT_BACK), 0, action);
            }
            _ => self.queue_entry(adapter, number, entry),
        }
    }

    /// Queues a completion and the one kept back, and raises the notification if armed.
    pub(crate) fn queue_entry(&mut self, adapter: usize, number: u32, entry: Entry) {
        let World {
            adapters,
            queue_pairs,
            ..
        } = self;
        let Some(ring) = adapters[adapter].completion_queue(number) else {
            return;
        };
        let mut queue = |ring: &mut CompletionRing, entry: Entry| {
            let owner = queue_pairs.get_mut(entry.owner);
            ring.push(entry, owner.and_then(|owner| owner.last_completion(number)));
        };
        if ring.failure.is_some() {
            return;
        }
        if !(entry.extra || ring.has_room()) {
            self.overrun(adapter, number);
            return;
        }
        queue(ring, entry);
        let completion = entry.completion;
        let mut notable = completion.solicited || completion.status != DtoStatus::Success;
        if ring.has_room()
            && let Some(delayed) = ring.kept_back.take()
        {
            notable |=
                delayed.completion.solicited || delayed.completion.status != DtoStatus::Success;
            queue(ring, delayed);
        }
        ring.publish();
        if ring
            .armed
            .is_some_and(|solicited_only| notable || !solicited_only)
        {
            self.notify(adapter, number);
        }
        self.deliveries = self.deliveries.wrapping_add(1);
    }

    /// Delivers the completion that is kept back, if any.
    pub(crate) fn release_kept(&mut self, adapter: usize, number: u32) {
        let kept = self.adapters[adapter]
            .completion_queue(number)
            .and_then(|ring| ring.kept_back.take());
        if let Some(entry) = kept {
            self.queue_entry(adapter, number, entry);
        }
    }

    fn notify(&mut self, adapter: usize, number: u32) {
        let Some(ring) = self.adapters[adapter].completion_queue(number) else {
            return;
        };
        ring.armed = None;
        let count = ring.notified;
        ring.notified = count.wrapping_add(1);
        if !self
            .faults
            .loses_notification((adapter as u16, number), count)
        {
            self.raise(adapter, ControlEvent::Completions { queue: number });
        }
    }

    /// Fails a queue without room, and breaks the queue pairs that use it.
    fn overrun(&mut self, adapter: usize, number: u32) {
        if let Some(ring) = self.adapters[adapter].completion_queue(number) {
            ring.fail(DeviceFailure::CompletionQueueOverrun);
            if ring.armed.is_some() {
                self.notify(adapter, number);
            }
            self.schedule
                .add(self.now, 0, Action::Overrun { adapter, number });
        }
        self.deliveries = self.deliveries.wrapping_add(1);
    }
}

/// A completion queue of an adapter.
#[derive(Debug)]
pub struct MockCompletionQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) adapter: usize,
    pub(crate) number: u32,
    pub(crate) ready: Arc<AtomicUsize>,
    /// Immediate data of the completion that was polled last.
    pub(crate) immediate: Option<u32>,
}

impl MockCompletionQueue {
    /// Returns true if a poll finds an entry.
    ///
    /// If there is none and polls drive the fabric, performs the next action and checks again.
    fn is_ready(&self) -> bool {
        if self.ready.load(Ordering::Acquire) > 0 {
            return true;
        }
        self.shared.poll_steps() && {
            self.shared.enter(World::step);
            self.ready.load(Ordering::Acquire) > 0
        }
    }
}

impl CompletionQueue for MockCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        if !self.is_ready() {
            return Ok(None);
        }
        let taken = self.shared.enter(|world| {
            match world.adapters[self.adapter].completion_queue(self.number) {
                Some(ring) => ring.take(),
                None => Ok(None),
            }
        })?;
        self.immediate = taken.and_then(|entry| entry.immediate);
        Ok(taken.map(|entry| entry.completion))
    }

    fn immediate(&mut self) -> Option<u32> {
        self.immediate
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        self.shared.enter(|world| {
            match world.adapters[self.adapter].completion_queue(self.number) {
                Some(ring) => ring.arm(solicited_only),
                None => Armed::Missed,
            }
        })
    }
}
