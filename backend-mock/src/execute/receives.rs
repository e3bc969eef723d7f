//! Receive buffers that messages take: shared receive queues, their limits, and watermarks.

use dat_core::backend::ControlEvent;
use dat_queues::Receive;

use crate::options::BufferOrder;
use crate::world::World;

/// Number of oldest buffers that the seed chooses from, if the order is seeded.
const CHOICE: u64 = 8;

impl World {
    /// Takes a buffer from a shared receive queue.
    pub(crate) fn take_shared(&mut self, adapter: usize, key: u32) -> Option<Receive> {
        let queue = self.adapters[adapter].shared_receives.get(key)?;
        let available = queue.available() as u64;
        if available == 0 || queue.is_failed() || self.fails_to_give(adapter, key) {
            return None;
        }
        let index = match self.options.buffer_order {
            BufferOrder::Posted => 0,
            BufferOrder::Seeded => self.draw(&(0..=available.min(CHOICE).saturating_sub(1))),
        };
        let queue = self.adapters[adapter].shared_receives.get_mut(key)?;
        let buffer = queue.take(index as usize)?;
        self.check_limit(adapter, key);
        Some(buffer)
    }

    /// Returns true if a fault makes the queue fail instead of giving a buffer.
    fn fails_to_give(&mut self, adapter: usize, key: u32) -> bool {
        let node = &mut self.adapters[adapter];
        let count = node.takes;
        node.takes = count.wrapping_add(1);
        if !self.faults.fails_shared_receive(adapter as u16, count) {
            return false;
        }
        if let Some(queue) = self.adapters[adapter].shared_receives.get_mut(key) {
            queue.fail();
            let event = ControlEvent::SharedReceiveFailed { queue: queue.token };
            self.raise(adapter, event);
        }
        true
    }

    /// Raises the limit event if it is due.
    pub(crate) fn check_limit(&mut self, adapter: usize, key: u32) {
        let Some(queue) = self.adapters[adapter].shared_receives.get_mut(key) else {
            return;
        };
        let token = queue.token;
        if queue.falls_below_limit() {
            self.raise(adapter, ControlEvent::SharedReceiveLimit { queue: token });
        }
    }

    /// Checks the watermarks after a buffer was taken or they were set (`Spec: EPH-02, EPH-03`).
    pub(crate) fn check_watermarks(&mut self, key: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(key) else {
            return;
        };
        let held = queue_pair.arrivals.len() as u32;
        let (adapter, token) = (queue_pair.adapter, queue_pair.setup.token);
        let (soft, hard) = queue_pair.watermarks.exceeded(held);
        if soft {
            self.raise(
                adapter,
                ControlEvent::SoftHighWatermark { queue_pair: token },
            );
        }
        if hard {
            self.break_connection(key);
        }
    }
}
