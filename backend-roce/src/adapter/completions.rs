//! Completion queues of an adapter.

use alloc::sync::Arc;
use core::sync::atomic::AtomicUsize;

use dat_core::backend::{BackendError, ControlEvent};
use dat_queues::{CompletionRing, Effect};

use super::Adapter;

/// A completion and its queue pair.
pub(super) type Entry = dat_queues::Entry<usize>;

/// A completion queue.
pub(crate) struct Completions {
    pub(crate) ring: CompletionRing<usize>,
    /// Set while an event of its completions is queued.
    pub(super) is_told: bool,
}

impl Completions {
    /// Makes a queue; `None` if there is no memory for `depth` completions.
    pub(crate) fn new(depth: u32, ready: Arc<AtomicUsize>) -> Option<Self> {
        let mut ring = CompletionRing::new(depth, ready);
        let is_told = false;
        ring.reserve(depth).then_some(Self { ring, is_told })
    }
}

impl AsMut<CompletionRing<usize>> for Completions {
    fn as_mut(&mut self) -> &mut CompletionRing<usize> {
        &mut self.ring
    }
}

impl Adapter {
    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut Completions> {
        self.completion_queues.get_mut(number)
    }

    /// Adds a completion queue.
    ///
    /// # Errors
    /// - `State`: there is one with this number.
    /// - `Resources`: there is no memory for the entry or its events.
    pub(crate) fn add_completion_queue(
        &mut self,
        number: u32,
        queue: Completions,
    ) -> Result<(), BackendError> {
        if !self.has_room_for_events() {
            return Err(BackendError::Resources);
        }
        self.completion_queues.insert(number, queue)
    }

    /// Returns true if a completion queue has lost completions.
    pub(crate) fn has_overrun(&self, number: u32) -> bool {
        let queue = self.completion_queues.get(number);
        queue.is_some_and(|queue| queue.ring.is_failed())
    }

    pub(crate) fn remove_completion_queue(&mut self, number: u32) {
        self.completion_queues.remove(number);
        self.withdraw(
            |event| matches!(*event, ControlEvent::Completions { queue } if queue == number),
        );
    }

    /// Adds a queue pair to the users of its completion queues, or removes it.
    pub(crate) fn use_completion_queues(&mut self, key: usize, uses: bool) {
        if let Some(pair) = self.pairs.get(key) {
            self.completion_queues.set_user(key, &pair.setup, uses);
        }
    }

    pub(super) fn add_completion(&mut self, queue: Option<u32>, entry: Entry) {
        let Some(number) = queue else {
            return;
        };
        let Some(queue) = self.completion_queue(number) else {
            return;
        };
        match queue.ring.push(entry) {
            Effect::None => {}
            Effect::Notify => self.tell_completions(number),
            Effect::Overrun => self.overrun(number),
        }
    }

    /// Raises the event of new completions. If it is queued already, only wakes its consumer.
    fn tell_completions(&mut self, queue: u32) {
        let told = self.completion_queue(queue).map(|queue| &mut queue.is_told);
        if told.is_some_and(|told| !core::mem::replace(told, true)) {
            self.raise(ControlEvent::Completions { queue });
        }
        self.raised = true;
    }

    /// Tells of a completion queue that failed, armed or not, and breaks its queue pairs.
    pub(super) fn overrun(&mut self, number: u32) {
        if let Some(queue) = self.completion_queue(number) {
            queue.ring.disarm();
            self.tell_completions(number);
        }
        for index in 0.. {
            let queue = self.completion_queue(number);
            let Some(key) = queue.and_then(|queue| queue.ring.user(index)) else {
                return;
            };
            self.break_pair(key);
        }
    }
}
