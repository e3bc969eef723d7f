//! Work queues and completion queues, as the core holds them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, ExtendedRequest, ExtendedSend,
    Peek, ReceiveRequest, Rejected, Segment, SendFlags, SendOperation, SendQueue, SendRequest,
    WorkQueue, WorkSlot,
};

use crate::adapter::{Adapter, Pair, ReceiveEntry, SEGMENTS, Segments, SendEntry, Work};
use crate::proto::memory::AtomicOperation;
use crate::shared::Shared;

/// Makes room for `segments` segments; false if these are too many, or there is no memory for them.
#[inline]
fn has_room_for(segments: usize, list: &mut Segments) -> bool {
    segments <= list.inline_size()
        || (segments <= SEGMENTS && list.try_reserve_exact(segments).is_ok())
}

/// The send queue of a queue pair; it collects requests until the doorbell rings.
pub struct RoceSendQueue {
    shared: Arc<Shared>,
    key: usize,
    committed: Vec<SendEntry>,
    depth: usize,
    /// Upper bound of the requests in the adapter.
    known: usize,
}

impl RoceSendQueue {
    pub(crate) fn new(shared: Arc<Shared>, key: usize, depth: usize) -> Self {
        Self {
            shared,
            key,
            committed: Vec::new(),
            depth,
            known: 0,
        }
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    /// Drops the requests that were not handed over.
    pub(crate) fn clear(&mut self) {
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
        let key = self.key;
        let used = self
            .shared
            .enter(|adapter| adapter.pairs.get(key).map(Pair::posted));
        self.known = used.unwrap_or(self.depth);
        self.known + self.committed.len() < self.depth
    }

    /// Hands the committed requests over; the error is their number.
    fn hand_over(&mut self) -> Result<(), u32> {
        if self.committed.is_empty() {
            return Ok(());
        }
        let count = self.committed.len();
        let (key, committed) = (self.key, &mut self.committed);
        let (taken, acts) = self.shared.enter(|adapter| {
            let before = adapter.gathers.load(Ordering::Relaxed);
            let taken = adapter.post_requests(key, committed.drain(..));
            // The thread has to know when requests that wait leave in any case.
            let waits = adapter.gathers.load(Ordering::Relaxed) && !before;
            (taken, waits || adapter.has_output())
        });
        if !taken {
            self.committed.clear();
            return Err(count as u32);
        }
        self.known = self.known.saturating_add(count);
        if acts {
            self.shared.flush();
        }
        Ok(())
    }

    fn add(&mut self, entry: SendEntry) -> Result<(), Rejected> {
        self.committed.push(entry);
        self.hand_over().map_err(|_| Rejected)
    }
}

/// A reserved slot of a send queue.
pub struct RoceSendSlot<'a> {
    queue: &'a mut RoceSendQueue,
    entry: SendEntry,
}

impl WorkSlot for RoceSendSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.entry.segments.push(segment);
    }

    fn commit(mut self, length: u32) -> Result<(), Rejected> {
        self.entry.length = length;
        self.queue.committed.push(self.entry);
        Ok(())
    }
}

impl WorkQueue for RoceSendQueue {
    type Request = SendRequest;
    type Slot<'a> = RoceSendSlot<'a>;

    fn reserve(&mut self, request: &SendRequest, segments: usize) -> Option<RoceSendSlot<'_>> {
        if !self.has_room() {
            return None;
        }
        let work = match request.operation {
            SendOperation::Send => Work::Send,
            SendOperation::RdmaWrite(range) => Work::Write(range),
            SendOperation::RdmaRead(range) => Work::Read(range),
        };
        let mut entry = SendEntry {
            token: request.token,
            work,
            length: 0,
            flags: request.flags,
            segments: Segments::new(),
        };
        if !has_room_for(segments, &mut entry.segments) {
            return None;
        }
        Some(RoceSendSlot { queue: self, entry })
    }

    fn ring(&mut self) -> Result<(), u32> {
        self.hand_over()
    }
}

impl SendQueue for RoceSendQueue {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        if !self.has_room() {
            return Err(Rejected);
        }
        let window = request.window.0;
        let key = self
            .shared
            .enter(|adapter| adapter.memories.begin_bind(window))
            .ok_or(Rejected)?;
        let added = self.add(SendEntry {
            token: request.token,
            work: Work::Bind(*request, key),
            length: 0,
            flags: request.flags & SendFlags::FENCE,
            segments: Segments::new(),
        });
        if added.is_err() {
            self.shared
                .enter(|adapter| adapter.memories.cancel_bind(key));
        }
        added.map(|()| key)
    }

    fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        if !self.has_room() {
            return Err(Rejected);
        }
        let mut list = Segments::new();
        if !has_room_for(segments.len(), &mut list) {
            return Err(Rejected);
        }
        list.extend_from_slice(segments);
        let work = match request.operation {
            ExtendedSend::WriteImmediate { remote, immediate } => {
                Work::WriteImmediate(remote, immediate)
            }
            ExtendedSend::FetchAndAdd { remote, add } => {
                Work::Atomic(remote, AtomicOperation::FetchAdd(add))
            }
            ExtendedSend::CompareAndSwap {
                remote,
                compare,
                swap,
            } => Work::Atomic(remote, AtomicOperation::CompareSwap { compare, swap }),
        };
        self.add(SendEntry {
            token: request.token,
            work,
            length: request.length,
            flags: request.flags,
            segments: list,
        })
    }
}

/// Owner of receives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Pair(usize),
    Shared(usize),
}

/// A receive queue, shared or of one queue pair.
pub struct RoceReceiveQueue {
    shared: Arc<Shared>,
    owner: Owner,
    committed: Vec<ReceiveEntry>,
    depth: usize,
    /// Receives in the adapter at the last check.
    known: usize,
}

impl RoceReceiveQueue {
    pub(crate) fn new(shared: Arc<Shared>, owner: Owner, depth: usize) -> Self {
        Self {
            shared,
            owner,
            committed: Vec::new(),
            depth,
            known: 0,
        }
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.known = depth;
    }

    /// Returns the number of receives that were not handed over.
    pub(crate) fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Drops the receives that were not handed over.
    pub(crate) fn clear(&mut self) {
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
        let owner = self.owner;
        let used = self.shared.enter(|adapter| match owner {
            Owner::Pair(key) => adapter
                .pairs
                .get(key)
                .map(|pair| pair.receives.len() + usize::from(pair.current.is_some())),
            Owner::Shared(key) => {
                let queue = adapter.shared_receives.get(key);
                queue.map(|queue| queue.outstanding())
            }
        });
        self.known = used.unwrap_or(self.depth);
        self.known + self.committed.len() < self.depth
    }
}

/// A reserved slot of a receive queue.
pub struct RoceReceiveSlot<'a> {
    queue: &'a mut RoceReceiveQueue,
    entry: ReceiveEntry,
}

impl WorkSlot for RoceReceiveSlot<'_> {
    fn segment(&mut self, segment: Segment) {
        self.entry.segments.push(segment);
    }

    fn commit(self, _length: u32) -> Result<(), Rejected> {
        self.queue.committed.push(self.entry);
        Ok(())
    }
}

impl WorkQueue for RoceReceiveQueue {
    type Request = ReceiveRequest;
    type Slot<'a> = RoceReceiveSlot<'a>;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<RoceReceiveSlot<'_>> {
        if !self.has_room() {
            return None;
        }
        let mut entry = ReceiveEntry {
            token: request.token,
            segments: Segments::new(),
        };
        if !has_room_for(segments, &mut entry.segments) {
            return None;
        }
        Some(RoceReceiveSlot { queue: self, entry })
    }

    fn ring(&mut self) -> Result<(), u32> {
        let count = self.committed.len();
        if count == 0 {
            return Ok(());
        }
        let (owner, committed) = (self.owner, &mut self.committed);
        let taken = self.shared.enter(|adapter| match owner {
            Owner::Pair(key) => adapter.post_receives(key, committed.drain(..)),
            Owner::Shared(key) => match adapter.shared_receives.get_mut(key) {
                Some(queue) => {
                    queue.buffers.extend(committed.drain(..));
                    true
                }
                None => false,
            },
        });
        self.committed.clear();
        if !taken {
            return Err(count as u32);
        }
        self.known = self.known.saturating_add(count);
        if self.shared.enter(|adapter| adapter.has_output()) {
            // The completions of an ended queue pair can overrun their queue, which ends the other
            // connections of that queue: their peers are told.
            self.shared.flush();
        }
        Ok(())
    }
}

/// A completion queue.
pub struct RoceCompletionQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u32,
    pub(crate) ready: Arc<AtomicUsize>,
    /// Set if requests of the adapter wait until the consumer has taken its completions.
    pub(crate) gathers: Arc<AtomicBool>,
    /// Immediate data of the completion that was polled last.
    pub(crate) immediate: Option<u32>,
    /// Token of the success that was peeked last.
    pub(crate) peeked: Option<u64>,
}

impl RoceCompletionQueue {
    /// Returns true if a poll finds an entry; without a thread, moves the packets that are due.
    fn look(&self) -> bool {
        if self.ready.load(Ordering::Acquire) > 0 {
            return true;
        }
        if self.gathers.load(Ordering::Acquire) {
            self.shared.enter(Adapter::release_gathered);
            self.shared.flush();
        }
        !self.shared.is_threaded() && {
            self.shared.poll();
            self.ready.load(Ordering::Acquire) > 0
        }
    }
}

impl CompletionQueue for RoceCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        self.immediate = None;
        if self.shared.is_forked() {
            return Err(DeviceFailure::Broken);
        }
        if !self.look() {
            return Ok(None);
        }
        let number = self.number;
        let taken =
            self.shared
                .enter_briefly(|adapter| match adapter.completion_queue(number) {
                    Some(ring) => ring.take(),
                    None => Ok(None),
                })?;
        self.immediate = taken.and_then(|entry| entry.immediate);
        Ok(taken.map(|entry| entry.completion))
    }

    fn peek(&mut self) -> Peek {
        if self.shared.is_forked() {
            return Peek::Other;
        }
        if !self.look() {
            return Peek::Empty;
        }
        let number = self.number;
        let head = self.shared.enter_briefly(|adapter| {
            let ring = adapter.completion_queue(number);
            ring.map_or(Peek::Other, |ring| ring.peek())
        });
        self.peeked = match head {
            Peek::Success { token, .. } => Some(token),
            Peek::Empty | Peek::Other => None,
        };
        head
    }

    fn skip(&mut self) {
        let (number, peeked) = (self.number, self.peeked.take());
        if let Some(token) = peeked {
            self.shared.enter_briefly(|adapter| {
                if let Some(ring) = adapter.completion_queue(number) {
                    ring.skip(token);
                }
            });
        }
    }

    fn immediate(&mut self) -> Option<u32> {
        self.immediate
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        let number = self.number;
        self.shared
            .enter(|adapter| match adapter.completion_queue(number) {
                Some(ring) => ring.arm(solicited_only),
                None => Armed::Missed,
            })
    }
}
