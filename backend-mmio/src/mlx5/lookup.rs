//! Table lookups for every layout, by names of the core and by device numbers.

use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, ControlEvent, SharedReceiveQueueKey};

use super::storage::{
    CompletionQueueSlot, NO_QUEUE, NOWHERE, QueueCell, QueuePairSlot, SharedReceiveSlot, Tables,
};
use crate::fault::DeviceFault;

impl<'s> Tables<'s> {
    /// Returns an error if the driver gave up on the device.
    pub(crate) fn alive(&self) -> Result<(), BackendError> {
        if self.is_faulty() {
            return Err(BackendError::Device);
        }
        Ok(())
    }

    /// Returns the free slot of a new completion queue, by the core's number.
    pub(crate) fn free_completion_queue(
        &self,
        name: u16,
    ) -> Result<&'s CompletionQueueSlot, BackendError> {
        let slot = self.completion_queues.get(usize::from(name));
        let slot = slot.filter(|_| name != NOWHERE);
        let slot = slot.ok_or(BackendError::Resources)?;
        if slot.number.load(Ordering::Relaxed) != NO_QUEUE {
            return Err(BackendError::State);
        }
        Ok(slot)
    }

    /// Returns the device number of a completion queue, by the core's number.
    pub(crate) fn completion_number(&self, name: u16) -> Result<u32, BackendError> {
        self.completion_queues
            .get(usize::from(name))
            .map(|slot| slot.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// Returns the completion queue with a device number, and its core number.
    pub(crate) fn completion_queue(&self, number: u32) -> Option<(u16, &'s CompletionQueueSlot)> {
        let mut known = (0..).zip(self.completion_queues);
        known.find(|(_, slot)| slot.number.load(Ordering::Relaxed) == number)
    }

    /// Records a fault if the completion queue that overran exists.
    pub(crate) fn overran(&self, number: u32) {
        if self.completion_queue(number).is_some() {
            self.fault(DeviceFault::Overrun);
        }
    }

    /// Returns a free slot for a shared receive queue.
    pub(crate) fn free_shared(&self) -> Result<(usize, &'s SharedReceiveSlot), BackendError> {
        let mut slots = self.shared_receive_queues.iter().enumerate();
        let free = slots.find(|(_, slot)| slot.number.load(Ordering::Relaxed) == NO_QUEUE);
        free.ok_or(BackendError::Resources)
    }

    /// Returns the device number of a shared receive queue.
    pub(crate) fn shared_number(&self, key: SharedReceiveQueueKey) -> Result<u32, BackendError> {
        self.shared_receive_queues
            .get(key.0)
            .map(|slot| slot.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// Returns the core's token of the shared receive queue with a device number.
    pub(crate) fn shared_token(&self, number: u32) -> Option<u64> {
        let queues = self.shared_receive_queues.iter();
        let mut known = queues.filter(|slot| slot.number.load(Ordering::Relaxed) == number);
        known.next().map(|slot| slot.token.load())
    }

    /// Returns an armed completion queue for which `left` returns true.
    pub(crate) fn waiting(
        &self,
        left: impl Fn(u16) -> bool,
    ) -> Option<(u16, &'s CompletionQueueSlot)> {
        let mut queues = (0_u16..).zip(self.completion_queues);
        queues.find(|(name, slot)| slot.armed.load(Ordering::Relaxed) != 0 && left(*name))
    }

    /// Disarms such a queue and returns its completion event.
    pub(crate) fn tell_waiting(&self, left: impl Fn(u16) -> bool) -> Option<ControlEvent> {
        let (queue, slot) = self.waiting(left)?;
        slot.armed.store(0, Ordering::Relaxed);
        Some(ControlEvent::Completions { queue })
    }

    /// Records the completions that may arrive after the device destroys a queue pair.
    pub(crate) fn owe_all(&self, life: &QueuePairSlot) {
        let shared = life.shared.load(Ordering::Relaxed).checked_sub(1);
        let shared = shared.and_then(|place| {
            let queue = self.shared_receive_queues.get(place as usize)?;
            Some(queue.places.load(Ordering::Relaxed))
        });
        self.owe(&life.requests, life.requests.outstanding());
        let received = shared.unwrap_or(life.receives.outstanding());
        self.owe(&life.receives, received);
    }

    fn owe(&self, queue: &QueueCell, completions: u32) {
        let name = usize::from(queue.completes_on());
        if let Some(slot) = self.completion_queues.get(name) {
            slot.owe(completions);
        }
    }
}
