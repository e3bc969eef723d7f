//! Completion queues of an adapter.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, BackendError, Completion, ControlEvent, DeviceFailure, Peek};
use dat_core::flags::DtoStatus;

use super::Adapter;
use crate::reserve::{Reserve, reserved};

/// A completion in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The queue pair.
    pub(crate) owner: usize,
    pub(crate) completion: Completion,
    /// Immediate data of a receive.
    pub(crate) immediate: Option<u32>,
    /// Kind of work that completed.
    pub(crate) kind: Kind,
}

/// Most completions taken that count for later requests.
const TAKEN_MAX: u32 = 128;

/// Kind of work that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Receive,
    /// A receive of a shared queue.
    SharedReceive,
}

impl Entry {
    /// Returns the entry as the head of a queue.
    fn peek(&self) -> Peek {
        let token = self.completion.token;
        let length = match self.kind {
            Kind::Request => u32::MAX,
            Kind::Receive if self.immediate.is_none() => self.completion.length,
            Kind::Receive | Kind::SharedReceive => return Peek::Other,
        };
        if self.completion.status == DtoStatus::Success {
            Peek::Success { token, length }
        } else {
            Peek::Other
        }
    }
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
    /// Set while an event of its completions is queued.
    pub(super) is_told: bool,
    /// Completions of requests that were taken, less the requests posted since.
    ///
    /// At most `TAKEN_MAX`.
    taken: u32,
    /// Number of polls that return an entry or the failure; read without the lock.
    ready: Arc<AtomicUsize>,
}

impl CompletionRing {
    /// Makes a queue; `None` if there is no memory for `depth` completions.
    pub(crate) fn new(depth: u32, ready: Arc<AtomicUsize>) -> Option<Self> {
        Some(Self {
            entries: reserved(depth as usize)?.into(),
            depth: depth as usize,
            armed: None,
            failure: None,
            is_told: false,
            taken: 0,
            ready,
        })
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
        let entry = self.pop();
        match (entry, self.failure) {
            (None, Some(failure)) => Err(failure),
            (entry, _) => Ok(entry),
        }
    }

    /// Returns the head without taking it.
    pub(crate) fn peek(&self) -> Peek {
        match (self.entries.front(), self.failure) {
            (Some(entry), _) => entry.peek(),
            (None, Some(_)) => Peek::Other,
            (None, None) => Peek::Empty,
        }
    }

    /// Takes the head if it is the success of `token`, as the last peek returned it.
    pub(crate) fn skip(&mut self, token: u64) {
        if let Some(Peek::Success { token: head, .. }) = self.entries.front().map(Entry::peek)
            && head == token
        {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front();
        self.publish();
        if entry.is_some_and(|entry| entry.kind == Kind::Request) {
            self.taken = self.taken.saturating_add(1).min(TAKEN_MAX);
        }
        entry
    }

    /// Returns true if a request that is posted now may wait for its consumer (ROCE-185).
    ///
    /// Completions of requests are here, and their consumer has taken earlier ones. Each of these
    /// counts for one request, so the requests of a consumer that takes none do not wait.
    pub(crate) fn is_being_taken(&mut self) -> bool {
        let more = self.entries.front().map(|entry| entry.kind) == Some(Kind::Request);
        let left = self.taken.checked_sub(1);
        self.taken = left.unwrap_or(0);
        more && left.is_some()
    }

    pub(crate) fn arm(&mut self, solicited_only: bool) -> Armed {
        if !self.entries.is_empty() || self.failure.is_some() {
            return Armed::Missed;
        }
        self.armed = Some(solicited_only);
        Armed::Armed
    }

    /// Changes the depth, at least to the number of queued completions.
    ///
    /// False if there is no memory for them.
    pub(crate) fn resize(&mut self, depth: u32) -> bool {
        let depth = self.entries.len().max(depth as usize);
        let has_room = self.entries.has_room_for(depth);
        if has_room {
            self.depth = depth;
        }
        has_room
    }

    /// Removes the completions of a queue pair.
    pub(crate) fn forget(&mut self, owner: usize) {
        self.entries.retain(|entry| entry.owner != owner);
        self.publish();
    }
}

impl Adapter {
    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut CompletionRing> {
        self.completion_queues.get_mut(number as usize)?.as_mut()
    }

    /// Adds a completion queue.
    ///
    /// # Errors
    /// - `State`: there is one with this number.
    /// - `Resources`: there is no memory for the entry or its events.
    pub(crate) fn add_completion_queue(
        &mut self,
        number: u32,
        ring: CompletionRing,
    ) -> Result<(), BackendError> {
        let index = number as usize;
        if index >= self.completion_queues.len() {
            if !self.completion_queues.has_room_for(index + 1) {
                return Err(BackendError::Resources);
            }
            self.completion_queues.resize_with(index + 1, || None);
        }
        if !self.has_room_for_events() {
            return Err(BackendError::Resources);
        }
        let is_free = self.completion_queues[index].is_none();
        if is_free {
            self.completion_queues[index] = Some(ring);
            self.completion_queue_count += 1;
        }
        is_free.then_some(()).ok_or(BackendError::State)
    }

    pub(crate) fn remove_completion_queue(&mut self, number: u32) {
        let slot = self.completion_queues.get_mut(number as usize);
        if slot.and_then(Option::take).is_some() {
            self.completion_queue_count -= 1;
        }
        self.withdraw(
            |event| matches!(*event, ControlEvent::Completions { queue } if queue == number),
        );
    }

    pub(super) fn add_completion(
        &mut self,
        queue: Option<u32>,
        owner: usize,
        completion: Completion,
        immediate: Option<u32>,
        kind: Kind,
    ) {
        let entry = Entry {
            owner,
            completion,
            immediate,
            kind,
        };
        let Some((number, ring)) =
            queue.and_then(|number| Some((number, self.completion_queue(number)?)))
        else {
            return;
        };
        match ring.push(entry) {
            Effect::None => {}
            Effect::Notify => self.tell_completions(number),
            Effect::Overrun => self.overrun(number),
        }
    }

    /// Raises the event of new completions. If it is queued already, only wakes its consumer.
    fn tell_completions(&mut self, queue: u32) {
        let ring = self.completion_queue(queue);
        if ring.is_some_and(|ring| !core::mem::replace(&mut ring.is_told, true)) {
            self.raise(ControlEvent::Completions { queue });
        }
        self.raised = true;
    }

    /// Breaks the queue pairs of a completion queue that failed.
    pub(super) fn overrun(&mut self, number: u32) {
        let Some(ring) = self.completion_queue(number) else {
            return;
        };
        if ring.disarm() {
            self.tell_completions(number);
        }
        for key in 0..self.pairs.bound() {
            let pair = self.pairs.get(key);
            if pair.is_some_and(|pair| pair.completion_queues().any(|queue| queue == number)) {
                self.break_pair(key);
            }
        }
    }
}
