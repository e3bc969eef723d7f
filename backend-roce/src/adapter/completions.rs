//! Completion queues of an adapter.

use alloc::sync::Arc;
use core::sync::atomic::AtomicUsize;

use dat_core::backend::{BackendError, ControlEvent};
use dat_queues::{CompletionRing, Effect, PairSetup};

use super::Adapter;
use crate::reserve::Reserve;

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

impl Adapter {
    pub(crate) fn completion_queue(&mut self, number: u32) -> Option<&mut Completions> {
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
        queue: Completions,
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
            self.completion_queues[index] = Some(queue);
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

    /// Makes room for one more user of completion queues; false if there is no memory for it.
    pub(crate) fn reserve_user(&mut self, setup: &PairSetup) -> bool {
        setup.completion_queues().all(|number| {
            self.completion_queue(number)
                .is_none_or(|queue| queue.ring.reserve_user())
        })
    }

    /// Adds a queue pair to the users of its completion queues, or removes it.
    pub(crate) fn use_completion_queues(&mut self, key: usize, uses: bool) {
        let Some(setup) = self.pairs.get(key).map(|pair| pair.setup) else {
            return;
        };
        for number in setup.completion_queues() {
            match self.completion_queue(number) {
                Some(queue) if uses => queue.ring.add_user(key),
                Some(queue) => queue.ring.remove_user(key),
                None => {}
            }
        }
    }

    pub(super) fn add_completion(&mut self, queue: Option<u32>, entry: Entry) {
        let Some(number) = queue else {
            return;
        };
        let queue = self.completion_queue(number);
        match queue.map_or(Effect::None, |queue| queue.ring.push(entry)) {
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

    /// Breaks the queue pairs of a completion queue that failed.
    pub(super) fn overrun(&mut self, number: u32) {
        let queue = self.completion_queue(number);
        if queue.is_some_and(|queue| queue.ring.disarm()) {
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
