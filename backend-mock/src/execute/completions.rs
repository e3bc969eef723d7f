//! Delivery of completions, and the faults that change it.

use dat_core::backend::{Completion, ControlEvent, DeviceFailure};
use dat_core::flags::DtoStatus;

use crate::objects::action::Action;
use crate::objects::completion_ring::{CompletionRing, Entry};
use crate::objects::faults::CompletionFault;
use crate::world::World;

/// Microseconds after which a completion that is kept back is delivered.
const KEPT_BACK: u64 = 1000;

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

    /// Breaks all queue pairs that use a completion queue.
    pub(super) fn break_users(&mut self, adapter: usize, number: u32) {
        let ring = self.adapters[adapter].completion_queue(number);
        for key in ring.map(|ring| ring.users.clone()).unwrap_or_default() {
            self.break_connection(key);
        }
    }
}
