//! All slots of a device, as its queues access them.

use core::sync::atomic::{Ordering, fence};

use dat_core::backend::SharedReceiveQueueKey;

use super::completion_queue_slot::CompletionQueueSlot;
use super::device_state::DeviceState;
use super::queue_cell::NO_QUEUE;
use super::queue_pair_slot::{QueuePairSlot, latest};
use super::request_slot::RequestSlot;
use super::shared_receive_slot::SharedReceiveSlot;
use crate::fault::DeviceFault;

/// The part of the storage that queues access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceSlots<'s> {
    pub(crate) state: &'s DeviceState,
    /// Generations, two per queue pair.
    pub(crate) generations: &'s [QueuePairSlot],
    pub(crate) completion_queues: &'s [CompletionQueueSlot],
    pub(crate) shared_receive_queues: &'s [SharedReceiveSlot],
    pub(crate) requests: &'s [RequestSlot],
}

impl<'s> DeviceSlots<'s> {
    /// Returns the latest generation of each queue pair.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &'s QueuePairSlot> + use<'s> {
        let (pairs, _) = self.generations.as_chunks();
        pairs.iter().map(latest)
    }

    /// Returns the latest generation of the queue pair at an index.
    pub(crate) fn latest_at(&self, index: usize) -> Option<&'s QueuePairSlot> {
        let (pairs, _) = self.generations.as_chunks();
        pairs.get(index).map(latest)
    }

    /// Returns true if the driver has requests to flush to a completion queue.
    pub(crate) fn has_flushed(&self, queue: u16) -> bool {
        let mut live = self.latest().filter(|generation| generation.is_live());
        live.any(|generation| {
            [&generation.requests, &generation.receives]
                .into_iter()
                .any(|cell| cell.is_of(queue) && cell.outstanding() != 0)
        })
    }

    /// Removes a destroyed shared receive queue from all queue pairs.
    pub(crate) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        for generation in self.generations {
            generation.forget_shared(key);
        }
    }

    /// Resets all slots to unused.
    pub(crate) fn clear(&self) {
        self.state.clear();
        for generation in self.generations {
            generation.user_index.store(0, Ordering::Relaxed);
            generation.expected.store(NO_QUEUE, Ordering::Relaxed);
            generation.number.store(NO_QUEUE, Ordering::Relaxed);
        }
        for queue in self.completion_queues {
            queue.begin(NO_QUEUE);
        }
        for queue in self.shared_receive_queues {
            queue.number.store(NO_QUEUE, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        self.state.is_faulty()
    }

    /// Starts the generation of a user index; completions match unless a fault is set.
    pub(crate) fn expect(&self, generation: &QueuePairSlot, user_index: u32) {
        generation.user_index.store(user_index, Ordering::Release);
        generation.expected.store(user_index, Ordering::Release);
        // `fault` does the two steps in the opposite order.
        fence(Ordering::SeqCst);
        if self.is_faulty() {
            generation.expected.store(NO_QUEUE, Ordering::Release);
        }
    }

    #[cold]
    pub(crate) fn fault(&self, fault: DeviceFault) {
        self.state.set_fault(fault);
        fence(Ordering::SeqCst);
        for generation in self.generations {
            generation.expected.store(NO_QUEUE, Ordering::Relaxed);
        }
    }
}
