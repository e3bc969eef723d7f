//! Receive queues, as the core holds them.

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use crate::executor::{Executor, Owner, list_for};
use crate::posted::Posted;
use crate::request::Receive;

/// A receive queue, shared or of one queue pair; it collects receives until the doorbell rings.
#[derive(Debug)]
pub struct ReceiveQueue<X: Executor> {
    executor: X,
    owner: Owner<X::Key>,
    posted: Posted<Receive>,
}

impl<X: Executor> ReceiveQueue<X> {
    /// Makes the queue of a new owner.
    pub fn new(executor: X, owner: Owner<X::Key>, depth: usize) -> Self {
        Self {
            executor,
            owner,
            posted: Posted::new(depth),
        }
    }

    /// Changes the depth.
    pub fn set_depth(&mut self, depth: usize) {
        self.posted.set_depth(depth);
    }

    /// Returns the number of receives that wait for the doorbell.
    pub fn committed(&self) -> usize {
        self.posted.len()
    }

    /// Drops the receives that were not handed over.
    pub fn clear(&mut self) {
        self.posted.clear();
    }

    fn has_room(&mut self) -> bool {
        self.posted.has_room(|| self.executor.receives(self.owner))
    }
}

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub struct ReceiveSlot<'a, X: Executor> {
    queue: &'a mut ReceiveQueue<X>,
    receive: Receive,
}

impl<X: Executor> WorkSlot for ReceiveSlot<'_, X> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.receive.segments.push(segment);
    }

    fn commit(self, _length: u32) -> Result<(), Rejected> {
        let queue = self.queue;
        if queue.executor.refuses_post(queue.owner) {
            return Err(Rejected);
        }
        queue.posted.push(self.receive);
        Ok(())
    }
}

impl<X: Executor> WorkQueue for ReceiveQueue<X> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = ReceiveSlot<'a, X>
    where
        X: 'a;

    fn reserve(&mut self, request: &ReceiveRequest, segments: usize) -> Option<ReceiveSlot<'_, X>> {
        if !self.has_room() {
            return None;
        }
        let receive = Receive {
            token: request.token,
            segments: list_for::<X>(segments)?,
        };
        Some(ReceiveSlot {
            queue: self,
            receive,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        self.posted
            .hand_over(|receives| self.executor.post_receives(self.owner, receives))
    }
}
