//! Table lookups for every layout, by names of the core and by device numbers.

use core::sync::atomic::Ordering;

use dat_core::backend::{BackendError, ControlEvent, SharedReceiveQueueKey};

use super::completion_queue_slot::CompletionQueueSlot;
use super::device_slots::DeviceSlots;
use super::queue_cell::{NO_COMPLETION_QUEUE, NO_QUEUE, QueueCell};
use super::queue_pair_slot::QueuePairSlot;
use super::shared_receive_slot::SharedReceiveSlot;
use crate::fault::DeviceFault;

/// Returns the name in this crate of a completion queue with a number of the core.
///
/// The names have 16 bits, so that cells and queue pairs stay small.
pub(crate) fn completion_name(number: u32) -> Option<u16> {
    u16::try_from(number).ok()
}

impl<'s> DeviceSlots<'s> {
    /// Returns an error if the driver gave up on the device.
    pub(crate) fn alive(&self) -> Result<(), BackendError> {
        if self.is_faulty() {
            return Err(BackendError::Device);
        }
        Ok(())
    }

    /// Returns the free slot of a new completion queue, and its name in this crate.
    pub(crate) fn free_completion_queue(
        &self,
        number: u32,
    ) -> Result<(u16, &'s CompletionQueueSlot), BackendError> {
        let name = completion_name(number)
            .filter(|name| *name != NO_COMPLETION_QUEUE)
            .ok_or(BackendError::Resources)?;
        let slot = self.completion_queues.get(usize::from(name));
        let slot = slot.ok_or(BackendError::Resources)?;
        if slot.number.load(Ordering::Relaxed) != NO_QUEUE {
            return Err(BackendError::State);
        }
        Ok((name, slot))
    }

    /// Returns the device number of a completion queue, by its name.
    pub(crate) fn completion_number(&self, name: u16) -> Result<u32, BackendError> {
        self.completion_queues
            .get(usize::from(name))
            .map(|slot| slot.number.load(Ordering::Relaxed))
            .filter(|number| *number != NO_QUEUE)
            .ok_or(BackendError::State)
    }

    /// Returns the completion queue with a device number, and its name.
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

    /// Returns an armed completion queue for which `has_work` returns true.
    pub(crate) fn find_armed(
        &self,
        has_work: impl Fn(u16) -> bool,
    ) -> Option<(u16, &'s CompletionQueueSlot)> {
        let mut queues = (0_u16..).zip(self.completion_queues);
        queues.find(|(name, slot)| slot.armed.load(Ordering::Relaxed) != 0 && has_work(*name))
    }

    /// Disarms such a queue and returns its completion event.
    pub(crate) fn fire_armed(&self, has_work: impl Fn(u16) -> bool) -> Option<ControlEvent> {
        let (queue, slot) = self.find_armed(has_work)?;
        slot.armed.store(0, Ordering::Relaxed);
        Some(ControlEvent::Completions {
            queue: queue.into(),
        })
    }

    /// Marks a queue pair as gone; returns its number, with which the caller destroys it.
    ///
    /// Records its late completions before a poller can see that it is gone. The device call may
    /// take long, so it follows.
    pub(crate) fn retire(&self, generation: &QueuePairSlot) -> u32 {
        let number = generation.number.load(Ordering::Relaxed);
        self.expect_stale_of(generation);
        generation.number.store(NO_QUEUE, Ordering::Release);
        number
    }

    /// Records the completions that may arrive after the device destroys a queue pair.
    pub(crate) fn expect_stale_of(&self, generation: &QueuePairSlot) {
        let shared = generation.shared.load(Ordering::Relaxed).checked_sub(1);
        let shared = shared.and_then(|index| {
            let queue = self.shared_receive_queues.get(index as usize)?;
            Some(queue.entries.load(Ordering::Relaxed))
        });
        self.expect_stale_on(&generation.requests, generation.requests.outstanding());
        let received = shared.unwrap_or(generation.receives.outstanding());
        self.expect_stale_on(&generation.receives, received);
    }

    fn expect_stale_on(&self, queue: &QueueCell, completions: u32) {
        let name = usize::from(queue.completes_on());
        if let Some(slot) = self.completion_queues.get(name) {
            slot.expect_stale(completions);
        }
    }
}
