//! Delivery of completions, and the faults that change it.

use dat_core::backend::{ControlEvent, DeviceFailure};
use dat_queues::Effect;

use crate::objects::action::Action;
use crate::objects::completions::Entry;
use crate::objects::faults::CompletionFault;
use crate::world::World;

/// Microseconds after which a completion that is kept back is delivered.
const KEPT_BACK: u64 = 1000;

impl World {
    /// Delivers a completion, or applies the planned fault to it.
    pub(crate) fn add_completion(&mut self, adapter: usize, queue: Option<u32>, entry: Entry) {
        let Some(number) = queue else {
            return;
        };
        let Some(queue) = self.adapters[adapter].completion_queue(number) else {
            return;
        };
        let count = queue.produced;
        queue.produced = count.wrapping_add(1);
        let extra = Entry {
            extra: true,
            ..entry
        };
        let fault = self.faults.completion((adapter as u16, number), count);
        if fault.is_some() {
            let end = self.connection_end(entry.owner);
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
            Some(queue) if queue.kept_back.is_none() => {
                queue.kept_back = Some(entry);
                let action = Action::Release { adapter, number };
                self.schedule
                    .add(self.now.saturating_add(KEPT_BACK), 0, action);
            }
            _ => self.queue_entry(adapter, number, entry),
        }
    }

    /// Queues a completion and the one kept back, and raises the notification if armed.
    pub(crate) fn queue_entry(&mut self, adapter: usize, number: u32, entry: Entry) {
        let Some(queue) = self.adapters[adapter].completion_queue(number) else {
            return;
        };
        if queue.ring.is_failed() {
            return;
        }
        let effect = queue.ring.push(entry);
        let mut notifies = effect == Effect::Notify;
        if effect == Effect::Overrun {
            self.overrun(adapter, number);
            return;
        }
        if queue.ring.has_room()
            && let Some(delayed) = queue.kept_back.take()
        {
            notifies |= queue.ring.push(delayed) == Effect::Notify;
        }
        if notifies {
            self.notify(adapter, number);
        }
        self.deliveries = self.deliveries.wrapping_add(1);
    }

    /// Delivers the completion that is kept back, if any.
    pub(crate) fn release_kept(&mut self, adapter: usize, number: u32) {
        let kept = self.adapters[adapter]
            .completion_queue(number)
            .and_then(|queue| queue.kept_back.take());
        if let Some(entry) = kept {
            self.queue_entry(adapter, number, entry);
        }
    }

    fn notify(&mut self, adapter: usize, number: u32) {
        let Some(queue) = self.adapters[adapter].completion_queue(number) else {
            return;
        };
        let count = queue.notified;
        queue.notified = count.wrapping_add(1);
        if !self
            .faults
            .loses_notification((adapter as u16, number), count)
        {
            self.raise(adapter, ControlEvent::Completions { queue: number });
        }
    }

    /// Fails a queue without room, and breaks the queue pairs that use it.
    fn overrun(&mut self, adapter: usize, number: u32) {
        if let Some(queue) = self.adapters[adapter].completion_queue(number) {
            queue.ring.fail(DeviceFailure::CompletionQueueOverrun);
            if queue.ring.disarm() {
                self.notify(adapter, number);
            }
            self.schedule
                .add(self.now, 0, Action::Overrun { adapter, number });
        }
        self.deliveries = self.deliveries.wrapping_add(1);
    }

    /// Breaks all queue pairs that use a completion queue.
    pub(super) fn break_users(&mut self, adapter: usize, number: u32) {
        for index in 0.. {
            let queue = self.adapters[adapter].completion_queue(number);
            let Some(key) = queue.and_then(|queue| queue.ring.user(index)) else {
                return;
            };
            self.break_connection(key);
        }
    }
}
