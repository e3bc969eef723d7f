//! Receive queues, as the core holds them.

use alloc::vec::Vec;

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use crate::executor::{Executor, Owner, list_for};
use crate::request::Receive;

/// A receive queue, shared or of one queue pair; it collects receives until the doorbell rings.
#[derive(Debug)]
pub struct ReceiveQueue<X: Executor> {
    executor: X,
    owner: Owner<X::Key>,
    committed: Vec<Receive>,
    depth: usize,
    /// Upper bound of the receives that the executor has.
    known: usize,
}

impl<X: Executor> ReceiveQueue<X> {
    /// Makes the queue of a new owner.
    pub fn new(executor: X, owner: Owner<X::Key>, depth: usize) -> Self {
        Self {
            executor,
            owner,
            committed: Vec::new(),
            depth,
            known: 0,
        }
    }

    /// Changes the depth.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    /// Returns the number of receives that wait for the doorbell.
    pub fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Drops the receives that were not handed over.
    pub fn clear(&mut self) {
        self.committed.clear();
        self.known = self.depth;
    }

    fn has_room(&mut self) -> bool {
        if self.committed.try_reserve(1).is_err() {
            return false;
        }
        if self.known + self.committed.len() < self.depth {
            return true;
        }
        self.known = self.executor.receives(self.owner).unwrap_or(self.depth);
        self.known + self.committed.len() < self.depth
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
        queue.committed.push(self.receive);
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
        let count = self.committed.len();
        if count == 0 {
            return Ok(());
        }
        let taken = self.executor.post_receives(self.owner, &mut self.committed);
        self.committed.clear();
        self.known = taken.ok_or(count as u32)?;
        Ok(())
    }
}
