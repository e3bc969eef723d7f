//! Receive queues as the core holds them, shared or of one queue pair.

use alloc::vec::Vec;
use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use crate::objects::Arc;
use crate::objects::queue_pair::{ReceiveEntry, State};
use crate::shared::Shared;

/// Owner of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    QueuePair(u32),
    Shared(u32),
}

/// A receive queue; it collects buffers until the doorbell rings.
#[derive(Debug)]
pub struct MockReceiveQueue {
    shared: Arc<Shared>,
    adapter: usize,
    owner: Owner,
    committed: Vec<ReceiveEntry>,
    scratch: Vec<Segment>,
    spare: Vec<Vec<Segment>>,
    /// Buffers in the fabric at the last check, and the most there may be.
    known: usize,
    depth: usize,
}

impl MockReceiveQueue {
    pub(crate) fn new(shared: Arc<Shared>, adapter: usize, owner: Owner, depth: usize) -> Self {
        Self {
            shared,
            adapter,
            owner,
            committed: Vec::new(),
            scratch: Vec::new(),
            spare: Vec::new(),
            known: 0,
            depth,
        }
    }

    /// Returns the number of buffers that wait for the doorbell.
    pub(crate) fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Drops the buffers that were not handed over.
    pub(crate) fn forget(&mut self) {
        self.committed.clear();
        self.known = self.depth;
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    fn has_room(&mut self) -> bool {
        if self.known.saturating_add(self.committed.len()) < self.depth {
            return true;
        }
        let (adapter, owner) = (self.adapter, self.owner);
        let used = self.shared.enter(|world| match owner {
            Owner::QueuePair(key) => Some(world.queue_pairs.get(key)?.receives_outstanding()),
            Owner::Shared(key) => Some(
                world.adapters[adapter]
                    .shared_receives
                    .get(key)?
                    .outstanding(),
            ),
        });
        let Some(used) = used else {
            return false;
        };
        self.known = used;
        used + self.committed.len() < self.depth
    }
}

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub struct MockReceiveSlot<'a> {
    queue: &'a mut MockReceiveQueue,
    token: u64,
}

impl WorkSlot for MockReceiveSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.queue.scratch.push(segment);
    }

    fn commit(self, _length: u32) -> Result<(), Rejected> {
        let queue = self.queue;
        let adapter = queue.adapter;
        let key = match queue.owner {
            Owner::QueuePair(key) => Some(key),
            Owner::Shared(_) => None,
        };
        if queue.shared.watches_posts()
            && queue.shared.enter(|world| world.refuses_post(adapter, key))
        {
            return Err(Rejected);
        }
        let next = queue.spare.pop().unwrap_or_default();
        queue.committed.push(ReceiveEntry {
            token: self.token,
            segments: core::mem::replace(&mut queue.scratch, next),
        });
        Ok(())
    }
}

impl WorkQueue for MockReceiveQueue {
    type Request = ReceiveRequest;
    type Slot<'a> = MockReceiveSlot<'a>;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        _segments: usize,
    ) -> Option<MockReceiveSlot<'_>> {
        if !self.has_room() {
            return None;
        }
        self.scratch.clear();
        Some(MockReceiveSlot {
            queue: self,
            token: request.token,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        if self.committed.is_empty() {
            return Ok(());
        }
        let Self {
            shared,
            adapter,
            owner,
            committed,
            spare,
            known,
            ..
        } = self;
        let taken = shared.enter(|world| match *owner {
            Owner::QueuePair(key) => {
                let queue_pair = world.queue_pairs.get_mut(key)?;
                for entry in committed.drain(..) {
                    queue_pair.receives.push_back(entry);
                    spare.extend(queue_pair.spare.pop());
                }
                *known = queue_pair.receives_outstanding();
                if queue_pair.state == State::Error {
                    world.flush_receives(key);
                }
                Some(())
            }
            Owner::Shared(key) => {
                let queue = world.adapters[*adapter].shared_receives.get_mut(key)?;
                for entry in committed.drain(..) {
                    queue.buffers.push_back(entry);
                    spare.extend(queue.spare.pop());
                }
                *known = queue.outstanding();
                Some(())
            }
        });
        taken.ok_or_else(|| {
            let refused = self.committed.len() as u32;
            self.committed.clear();
            refused
        })
    }
}
