//! The send queue as the core holds it.

use alloc::vec::Vec;
use dat_core::backend::{
    BindRequest, ExtendedRequest, ExtendedSend, Rejected, Segment, SendFlags, SendOperation,
    SendQueue, SendRequest, WorkQueue, WorkSlot,
};

use crate::objects::Arc;
use crate::objects::change::Change;
use crate::objects::memories::RemoteKey;
use crate::objects::queue_pair::{SendEntry, State, Work};
use crate::shared::Shared;

/// The send queue of a queue pair; it collects requests until the doorbell rings.
#[derive(Debug)]
pub struct MockSendQueue {
    shared: Arc<Shared>,
    adapter: usize,
    queue_pair: u32,
    committed: Vec<SendEntry>,
    scratch: Vec<Segment>,
    spare: Vec<Vec<Segment>>,
    /// Requests in the fabric at the last check, and the most there may be.
    known: usize,
    depth: usize,
    /// True if the next request may start while an earlier bind is pending.
    overtakes_binds: bool,
}

impl MockSendQueue {
    pub(crate) fn new(shared: Arc<Shared>, adapter: usize, queue_pair: u32, depth: usize) -> Self {
        Self {
            shared,
            adapter,
            queue_pair,
            committed: Vec::new(),
            scratch: Vec::new(),
            spare: Vec::new(),
            known: 0,
            depth,
            overtakes_binds: false,
        }
    }

    /// Drops the requests that were not handed over.
    pub(crate) fn forget(&mut self) {
        self.committed.clear();
        self.known = self.depth;
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    /// Lets the next request start while an earlier bind is pending.
    ///
    /// For models of devices whose requests wait for a bind only if they are fenced.
    pub fn overtake_binds(&mut self) {
        self.overtakes_binds = true;
    }

    fn has_room(&mut self) -> bool {
        if self.known.saturating_add(self.committed.len()) < self.depth {
            return true;
        }
        let key = self.queue_pair;
        self.known = self.shared.enter(|world| {
            let queue_pair = world.queue_pairs.get(key);
            queue_pair.map_or(usize::MAX, |queue_pair| queue_pair.sends.len())
        });
        self.known
            .checked_add(self.committed.len())
            .is_some_and(|used| used < self.depth)
    }

    fn refused(&self) -> bool {
        let (adapter, key) = (self.adapter, self.queue_pair);
        self.shared.watches_posts()
            && self
                .shared
                .enter(|world| world.refuses_post(adapter, Some(key)))
    }

    /// Hands the committed requests to the fabric; fails with their number if it refuses.
    fn hand_over(&mut self) -> Result<(), u32> {
        if self.committed.is_empty() {
            return Ok(());
        }
        let Self {
            shared,
            queue_pair: key,
            committed,
            spare,
            known,
            ..
        } = self;
        shared
            .enter(|world| {
                let Some(queue_pair) = world.queue_pairs.get_mut(*key) else {
                    return Err(());
                };
                match queue_pair.state {
                    State::Unconnected | State::Connecting | State::Accepting => return Err(()),
                    State::Connected | State::Error => {}
                }
                for entry in committed.drain(..) {
                    queue_pair.sends.push_back(entry);
                    spare.extend(queue_pair.spare.pop());
                }
                *known = queue_pair.sends.len();
                if queue_pair.state == State::Error {
                    world.flush_requests(*key);
                } else {
                    world.kick(*key);
                }
                Ok(())
            })
            .map_err(|()| {
                let refused = self.committed.len() as u32;
                self.committed.clear();
                refused
            })
    }
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub struct MockSendSlot<'a> {
    queue: &'a mut MockSendQueue,
    request: SendRequest,
}

impl WorkSlot for MockSendSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.queue.scratch.push(segment);
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        let Self { queue, request } = self;
        if queue.refused() {
            return Err(Rejected);
        }
        let work = match request.operation {
            SendOperation::Send => Work::Send,
            SendOperation::RdmaWrite(range) => Work::Write(range),
            SendOperation::RdmaRead(range) => Work::Read(range),
        };
        let next = queue.spare.pop().unwrap_or_default();
        let segments = core::mem::replace(&mut queue.scratch, next);
        queue.committed.push(SendEntry {
            token: request.token,
            work,
            length,
            flags: request.flags,
            segments,
            moved: 0,
            outcome: None,
            answered: false,
            overtakes_binds: core::mem::take(&mut queue.overtakes_binds),
        });
        Ok(())
    }
}

impl WorkQueue for MockSendQueue {
    type Request = SendRequest;
    type Slot<'a> = MockSendSlot<'a>;

    fn reserve(&mut self, request: &SendRequest, _segments: usize) -> Option<MockSendSlot<'_>> {
        if !self.has_room() {
            return None;
        }
        self.scratch.clear();
        Some(MockSendSlot {
            queue: self,
            request: *request,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        self.hand_over()
    }
}

impl SendQueue for MockSendQueue {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        if !self.has_room() || self.refused() {
            return Err(Rejected);
        }
        let adapter = self.adapter;
        let window = request.window.0 as u32;
        let key = self
            .shared
            .enter(|world| {
                let memories = &mut world.adapters[adapter].memories;
                memories.windows.get(window)?;
                Some(memories.remote_keys.insert(RemoteKey::Binding))
            })
            .ok_or(Rejected)?;
        self.committed.push(SendEntry {
            token: request.token,
            work: Work::Bind(*request, key),
            length: 0,
            flags: request.flags & SendFlags::FENCE,
            segments: self.spare.pop().unwrap_or_default(),
            moved: 0,
            outcome: None,
            answered: false,
            overtakes_binds: core::mem::take(&mut self.overtakes_binds),
        });
        match self.hand_over() {
            Ok(()) => Ok(key),
            Err(_) => {
                self.shared.enter(|world| {
                    let memories = &mut world.adapters[adapter].memories;
                    memories.remote_keys.remove(key);
                });
                Err(Rejected)
            }
        }
    }

    fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        if !self.has_room() || self.refused() {
            return Err(Rejected);
        }
        let work = match request.operation {
            ExtendedSend::WriteImmediate { remote, immediate } => {
                Work::WriteImmediate(remote, immediate)
            }
            ExtendedSend::FetchAndAdd { remote, add } => Work::Atomic(remote, Change::Add(add)),
            ExtendedSend::CompareAndSwap {
                remote,
                compare,
                swap,
            } => Work::Atomic(remote, Change::Swap { compare, swap }),
        };
        let mut list = self.spare.pop().unwrap_or_default();
        list.extend_from_slice(segments);
        self.committed.push(SendEntry {
            token: request.token,
            work,
            length: request.length,
            flags: request.flags,
            segments: list,
            moved: 0,
            outcome: None,
            answered: false,
            overtakes_binds: core::mem::take(&mut self.overtakes_binds),
        });
        self.hand_over().map_err(|_| Rejected)
    }
}
