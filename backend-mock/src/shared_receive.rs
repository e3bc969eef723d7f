//! Shared receive queues in the fabric.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dat_core::backend::{ControlEvent, Segment};

use crate::options::BufferOrder;
use crate::queue_pair::ReceiveEntry;
use crate::world::World;

/// Number of oldest buffers that the seed chooses from, if the order is seeded.
const CHOICE: u64 = 8;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceive {
    pub(crate) token: u64,
    pub(crate) domain: u32,
    pub(crate) depth: usize,
    /// Buffers that endpoints can still take.
    pub(crate) buffers: VecDeque<ReceiveEntry>,
    /// Number of buffers that messages have taken and that have not completed.
    pub(crate) taken: usize,
    /// Limit of an armed queue; 0 if unarmed.
    ///
    /// One event is raised once fewer buffers are left.
    pub(crate) limit: u32,
    /// Set if the queue failed; it keeps its buffers.
    pub(crate) failed: bool,
    pub(crate) spare: Vec<Vec<Segment>>,
}

impl SharedReceive {
    pub(crate) fn new(token: u64, domain: u32, depth: u32) -> Self {
        Self {
            token,
            domain,
            depth: depth as usize,
            buffers: VecDeque::new(),
            taken: 0,
            limit: 0,
            failed: false,
            spare: Vec::new(),
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.buffers.len() + self.taken
    }

    /// Disarms the limit and returns true if fewer buffers are left (`Spec: SRL-02`).
    fn falls_below_limit(&mut self) -> bool {
        let below = (self.buffers.len() as u64) < u64::from(self.limit);
        if below {
            self.limit = 0;
        }
        below
    }
}

impl World {
    /// Takes a buffer from a shared receive queue.
    pub(crate) fn take_shared(&mut self, adapter: usize, key: u32) -> Option<ReceiveEntry> {
        let queue = self.adapters[adapter].shared_receives.get(key)?;
        let available = queue.buffers.len() as u64;
        if available == 0 || queue.failed || self.fails_to_give(adapter, key) {
            return None;
        }
        let index = match self.options.buffer_order {
            BufferOrder::Posted => 0,
            BufferOrder::Seeded => self.draw(&(0..=available.min(CHOICE).saturating_sub(1))),
        };
        let queue = self.adapters[adapter].shared_receives.get_mut(key)?;
        let buffer = queue.buffers.remove(index as usize)?;
        queue.taken += 1;
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
            (queue.failed, queue.limit) = (true, 0);
            let event = ControlEvent::SharedReceiveFailed { queue: queue.token };
            self.raise(adapter, event);
        }
        true
    }

    /// Counts a taken buffer that has completed.
    pub(crate) fn give_back_shared(
        &mut self,
        adapter: usize,
        key: u32,
        mut segments: Vec<Segment>,
    ) {
        if let Some(queue) = self.adapters[adapter].shared_receives.get_mut(key) {
            queue.taken = queue.taken.saturating_sub(1);
            segments.clear();
            if queue.spare.len() < queue.depth {
                queue.spare.push(segments);
            }
        }
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
}
