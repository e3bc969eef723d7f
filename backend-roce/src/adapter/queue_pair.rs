//! Queue pairs of an adapter.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use dat_core::backend::{DomainKey, QueuePairRequest, RemoteRange, SendFlags};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::sync::RegisteredSpan;
use dat_core::time::Instant;
use dat_queues::{
    Change, PairSetup, Receive as PostedReceive, Request as PostedRequest, Segments,
    SharedReceives, State, Watermarks, Work,
};

use super::attached::Attempt;
use super::buffers::Share;
use super::datagrams::Receiver;
use super::memories::{Memories, Opening, User};
use super::unread::Unread;
use crate::port::{LocalNumber, LocalQueue, Path};
use crate::proto::memory::{
    AccessError, AtomicOperation, LocalError, Receive, ReceiveQueue, RemoteAddress, RemoteMemory,
    RequestMemory, Right,
};
use crate::proto::queue_pair::QueuePair;
use crate::proto::requester::{Operation, Request, RequestSlot, Status};
use crate::proto::responder::{ReceiveStatus, ResourceSlot};
use crate::reserve::zeros;

/// Most segments of a request.
pub(crate) const SEGMENTS: usize = 32;

/// Returns the operation of the transport.
fn operation(work: &Work) -> Operation {
    let at = |range: RemoteRange| RemoteAddress {
        key: range.key,
        address: range.address,
    };
    match *work {
        Work::Send => Operation::Send { immediate: None },
        Work::Write(range) => Operation::Write {
            remote: at(range),
            immediate: None,
        },
        Work::WriteImmediate(range, number) => Operation::Write {
            remote: at(range),
            immediate: Some(number.to_ne_bytes()),
        },
        Work::Read(range) => Operation::Read { remote: at(range) },
        Work::Atomic(range, change) => Operation::Atomic {
            remote: at(range),
            operation: match change {
                Change::Add(add) => AtomicOperation::FetchAdd(add),
                Change::Swap { compare, swap } => AtomicOperation::CompareSwap { compare, swap },
            },
        },
        Work::Bind(..) => Operation::Local,
    }
}

/// A request in the transport.
#[derive(Clone, Debug)]
pub(crate) struct SendEntry {
    pub(crate) request: PostedRequest,
    /// Set for a probe of the peer, which has no completion.
    pub(crate) is_probe: bool,
    /// Set if no completion reports a success.
    pub(crate) is_silent: bool,
    /// Set if the data was copied when the request was posted.
    pub(crate) is_inline: bool,
    pub(crate) beside: Beside,
}

/// Details of a request by a device, in addition to its work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    Nothing,
    /// Immediate data of a message.
    Immediate(u32),
    /// Key that a message invalidates.
    Invalidate(u32),
    /// Details of a bind.
    Opening(Opening),
}

impl From<PostedRequest> for SendEntry {
    fn from(request: PostedRequest) -> Self {
        Self {
            request,
            is_probe: false,
            is_silent: false,
            is_inline: false,
            beside: Beside::Nothing,
        }
    }
}

impl SendEntry {
    /// Returns a probe of the peer: a Write of 0 bytes, which needs no key (ROCE-111).
    pub(crate) fn probe() -> Self {
        let nowhere = RemoteRange { address: 0, key: 0 };
        let (work, flags) = (Work::Write(nowhere), SendFlags::empty());
        Self {
            is_probe: true,
            ..Self::from(PostedRequest::new(0, work, flags, Segments::new()))
        }
    }

    /// Returns the immediate data of a message.
    pub(crate) const fn immediate(&self) -> Option<[u8; 4]> {
        match self.beside {
            Beside::Immediate(number) => Some(number.to_ne_bytes()),
            _ => None,
        }
    }

    /// Returns what a bind of a device opens.
    pub(crate) const fn opening(&self) -> Option<Opening> {
        match self.beside {
            Beside::Opening(opening) => Some(opening),
            _ => None,
        }
    }

    fn is_of_type_2(&self) -> bool {
        self.opening().is_some_and(|opening| opening.is_type_2)
    }

    /// Returns the key that was drawn for a bind.
    pub(crate) fn drawn_key(&self) -> Option<u32> {
        match self.request.work {
            Work::Bind(_, key) if !self.is_of_type_2() => Some(key),
            _ => None,
        }
    }

    /// Returns true if it invalidates a key of this side.
    #[inline]
    pub(crate) fn is_invalidation(&self) -> bool {
        let is_empty = matches!(&self.request.work, Work::Bind(request, _) if request.length == 0);
        is_empty && self.is_of_type_2()
    }

    /// Returns the request of the transport; `position` names it.
    pub(crate) fn request(&self, position: u64) -> Request {
        let request = &self.request;
        let operation = match request.work {
            Work::Send => match self.beside {
                Beside::Invalidate(key) => Operation::SendInvalidate { key },
                _ => Operation::Send {
                    immediate: self.immediate(),
                },
            },
            work => operation(&work),
        };
        Request {
            token: position,
            operation,
            length: request.length,
            fence: request.flags.contains(SendFlags::FENCE),
            solicited: request.flags.contains(SendFlags::SOLICITED),
        }
    }

    /// Returns the status of the completion.
    pub(crate) fn status(&self, status: Status) -> DtoStatus {
        match status {
            Status::Success => DtoStatus::Success,
            Status::Flushed => DtoStatus::Flushed,
            Status::LocalProtection if matches!(self.request.work, Work::Bind(..)) => {
                DtoStatus::RmrOperationFailed
            }
            Status::LocalProtection => DtoStatus::LocalProtection,
            Status::BadResponse => DtoStatus::BadResponse,
            Status::RemoteAccess => DtoStatus::RemoteAccess,
            Status::RemoteInvalidRequest | Status::RemoteOperational => DtoStatus::RemoteResponder,
            Status::RetryExceeded => DtoStatus::Transport,
            Status::RnrRetryExceeded => DtoStatus::ReceiverNotReady,
        }
    }
}

/// Returns the status of the completion of a receive.
pub(crate) fn receive_status(status: ReceiveStatus) -> DtoStatus {
    match status {
        ReceiveStatus::Success => DtoStatus::Success,
        ReceiveStatus::Length => DtoStatus::LocalLength,
        ReceiveStatus::LocalProtection => DtoStatus::LocalProtection,
        ReceiveStatus::Flushed => DtoStatus::Flushed,
    }
}

/// Returns the bytes of a receive.
fn length(receive: &PostedReceive) -> u32 {
    let lengths = receive.segments.iter().map(|segment| segment.length);
    lengths.fold(0, u32::saturating_add)
}

/// Data of requests that was copied when they were posted, in a place for each request.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    bytes: Vec<u8>,
    /// Length of a place.
    longest: usize,
    places: usize,
}

impl Inline {
    fn range(&self, position: u64) -> core::ops::Range<usize> {
        let place = position.checked_rem(self.places as u64).unwrap_or(0) as usize;
        let start = place * self.longest;
        start..start + self.longest
    }

    fn place_mut(&mut self, position: u64) -> &mut [u8] {
        let range = self.range(position);
        self.bytes.get_mut(range).unwrap_or_default()
    }

    /// Fills `bytes` with the data of the request at a position, from `offset` on.
    fn copy(&self, position: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        let place = self.bytes.get(self.range(position)).ok_or(LocalError)?;
        let rest = place.get(offset as usize..).ok_or(LocalError)?;
        bytes.copy_from_slice(rest.get(..bytes.len()).ok_or(LocalError)?);
        Ok(())
    }
}

/// Drain of a send queue, during which no request begins (ROCE-278).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    No,
    Yes,
    /// As `Yes`, and an event tells once it has.
    Tells,
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) setup: PairSetup,
    pub(crate) state: State,
    /// Room for the requests of the next connection.
    request_slots: Vec<RequestSlot>,
    /// Room for the Reads and Atomics of the peer of the next connection.
    resource_slots: Vec<ResourceSlot>,
    /// QPN of a queue pair that is attached by its attributes.
    pub(crate) qpn: Option<u32>,
    /// How its next connection is made, of a queue pair of a device.
    pub(crate) attempt: Option<Attempt>,
    /// Key of a queue pair for datagrams, which has no transport (Q_Key).
    pub(crate) datagrams: Option<u32>,
    /// Receivers of the datagrams among the requests.
    pub(crate) receivers: VecDeque<Receiver>,
    /// Data of requests that was copied when they were posted.
    pub(super) inline: Inline,
    /// The transport of a connection, until the queue pair is reset.
    pub(crate) transport: Option<QueuePair<'static>>,
    /// Share of the connection's socket buffers.
    pub(crate) share: Option<Share>,
    /// Pair of local queues of the connection, if its packets use no socket.
    pub(crate) local: Option<LocalNumber>,
    /// Communication id of the connection, if connection management made it.
    pub(crate) link: Option<u32>,
    /// Addresses of packets to the peer, while there is a transport.
    pub(crate) path: Option<Path>,
    /// Posted requests that are not complete, and probes.
    pub(crate) sends: VecDeque<SendEntry>,
    /// Number of probes among them.
    pub(crate) probes: usize,
    /// Silence of the peer after which it is probed.
    pub(crate) keep_alive: Option<Duration>,
    /// Time of the last packet of the peer.
    pub(crate) heard: Instant,
    /// Time of the last look that found a silent peer.
    pub(crate) looked: Instant,
    /// Silence that such looks, one after another, have found.
    pub(crate) silence: Duration,
    /// Position of the oldest one.
    pub(crate) first: u64,
    pub(crate) receives: VecDeque<PostedReceive>,
    /// The receive of the message under way.
    pub(crate) current: Option<PostedReceive>,
    pub(crate) watermarks: Watermarks,
    /// Set once a request has come, of an attached queue pair.
    pub(crate) has_peer: bool,
    /// Set while the queue pair waits for its turn to send.
    pub(crate) is_ready: bool,
    /// Set while requests may wait for the consumer (ROCE-185).
    pub(crate) is_gathering: bool,
    /// Set if the peer could not carry out a request for reasons of its own.
    pub(crate) peer_failed: bool,
    pub(crate) drain: Drain,
    /// Set from a failure of the transport until its last packet is sent.
    pub(crate) is_failing: bool,
    /// Packets that the peer had not read at the last time-out.
    pub(super) unread: Option<Unread>,
}

/// Limits a number of Reads to what a message has room for.
fn reads(count: u32) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

impl Pair {
    /// Returns who accesses memory for it.
    pub(crate) const fn user(&self) -> User {
        User {
            domain: self.setup.domain,
            qpn: self.qpn,
        }
    }

    /// Returns the number of the consumer's requests that are not complete.
    pub(crate) fn posted(&self) -> usize {
        self.sends.len() - self.probes
    }

    /// Makes a queue pair; `None` if there is no memory for its requests and receives.
    pub(crate) fn new(request: &QueuePairRequest) -> Option<Self> {
        let mut pair = Self {
            setup: PairSetup::new(request),
            state: State::Unconnected,
            request_slots: Vec::new(),
            resource_slots: Vec::new(),
            qpn: None,
            attempt: None,
            datagrams: None,
            receivers: VecDeque::new(),
            inline: Inline::default(),
            transport: None,
            share: None,
            local: None,
            link: None,
            path: None,
            sends: VecDeque::new(),
            probes: 0,
            keep_alive: None,
            heard: Instant::ZERO,
            looked: Instant::ZERO,
            silence: Duration::ZERO,
            first: 0,
            receives: VecDeque::new(),
            current: None,
            watermarks: Watermarks::default(),
            has_peer: false,
            is_ready: false,
            is_gathering: false,
            peer_failed: false,
            drain: Drain::No,
            is_failing: false,
            unread: None,
        };
        let setup = pair.setup;
        pair.reserve(&setup).then_some(pair)
    }

    /// Makes room for the requests and receives that the setup allows, and a probe; false if
    /// there is no memory.
    pub(crate) fn reserve(&mut self, setup: &PairSetup) -> bool {
        let requests = setup.request_depth + 1;
        let receives = setup.receive_depth;
        let more = |needed: usize, used: usize| needed.saturating_sub(used);
        let (sends, own) = (&mut self.sends, &mut self.receives);
        sends.try_reserve(more(requests, sends.len())).is_ok()
            && own.try_reserve(more(receives, own.len())).is_ok()
    }

    /// Makes room for the state of a connection; false if there is no memory.
    pub(crate) fn reserve_transport(&mut self) -> bool {
        let reads_in = self.reads().0;
        let (requests, resources) = (&mut self.request_slots, &mut self.resource_slots);
        let slots = (self.setup.request_depth + 1).next_power_of_two();
        requests.try_reserve_exact(slots).is_ok()
            && resources.try_reserve_exact(reads_in.into()).is_ok()
    }

    /// Takes the room for the state of a connection with `probes` probes at a time.
    pub(crate) fn transport_slots(
        &mut self,
        probes: usize,
        resources: usize,
    ) -> (Vec<RequestSlot>, Vec<ResourceSlot>) {
        (self.request_slots(probes), self.resources(resources))
    }

    /// Takes the room for requests, and `probes` probes at a time.
    pub(crate) fn request_slots(&mut self, probes: usize) -> Vec<RequestSlot> {
        let requests = (self.setup.request_depth + probes)
            .max(1)
            .next_power_of_two();
        let mut slots = core::mem::take(&mut self.request_slots);
        slots.resize(requests, RequestSlot::EMPTY);
        slots
    }

    /// Takes the room for the Reads and Atomics of the peer.
    pub(crate) fn resources(&mut self, count: usize) -> Vec<ResourceSlot> {
        let mut answers = core::mem::take(&mut self.resource_slots);
        answers.resize(count, ResourceSlot::EMPTY);
        answers
    }

    /// Makes room for `longest` bytes of data in each request; false if there is no memory.
    pub(crate) fn reserve_inline(&mut self, longest: usize) -> bool {
        let places = self.setup.request_depth.max(1);
        let bytes = zeros(places.saturating_mul(longest));
        let is_made = bytes.is_some();
        self.inline = Inline {
            bytes: bytes.unwrap_or_default(),
            longest,
            places,
        };
        is_made
    }

    /// Copies the data of the next request; returns its length.
    ///
    /// The caller has looked for room, and at the longest length.
    pub(crate) fn place_inline(&mut self, parts: &[&[u8]]) -> u32 {
        let position = self.first + self.sends.len() as u64;
        let mut rest = self.inline.place_mut(position);
        let mut length = 0;
        for part in parts {
            let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
            now.copy_from_slice(part.get(..now.len()).unwrap_or_default());
            length += now.len() as u32;
            rest = later;
        }
        length
    }

    /// Returns the most bytes of data that a request brings itself.
    pub(crate) const fn longest_inline(&self) -> usize {
        self.inline.longest
    }

    /// Returns how many Reads and Atomics may be under way: those of the peer, and its own.
    pub(crate) fn reads(&self) -> (u8, u8) {
        (reads(self.setup.reads_in), reads(self.setup.reads_out))
    }

    /// Returns the number of receives that are not complete.
    pub(crate) fn receives_outstanding(&self) -> usize {
        self.receives.len() + usize::from(self.current.is_some())
    }

    /// Returns the memory that requests may access.
    pub(crate) fn memory<'a>(&'a self, memories: &'a Memories) -> Access<'a> {
        Access {
            memories,
            user: self.user(),
            sends: &self.sends,
            first: self.first,
            inline: &self.inline,
            queue: None,
            placed: 0,
        }
    }

    /// Returns the transport, with the memory that its halves may access.
    pub(crate) fn access<'a>(
        &'a mut self,
        memories: &'a Memories,
    ) -> Option<(&'a mut QueuePair<'static>, Access<'a>)> {
        let access = Access {
            memories,
            user: self.user(),
            sends: &self.sends,
            first: self.first,
            inline: &self.inline,
            queue: None,
            placed: 0,
        };
        Some((self.transport.as_mut()?, access))
    }

    /// Returns true if no request is under way; datagrams are complete once they leave.
    pub(crate) fn has_drained(&self) -> bool {
        let transport = self.transport.as_ref();
        transport.is_none_or(QueuePair::has_drained)
    }

    /// Returns true if the queue pair has a connection or an attempt.
    pub(crate) const fn is_open(&self) -> bool {
        self.state.is_open()
    }
}

/// The memory that the halves of a queue pair may access.
pub(crate) struct Access<'a> {
    pub(crate) memories: &'a Memories,
    pub(crate) user: User,
    pub(crate) sends: &'a VecDeque<SendEntry>,
    pub(crate) first: u64,
    pub(crate) inline: &'a Inline,
    /// The queue that a payload stays in, or goes to; the bytes of the packet then only tell its
    /// length.
    pub(crate) queue: Option<&'a dyn LocalQueue>,
    /// Bytes of the payload that went into the queue.
    pub(crate) placed: usize,
}

/// Shortest payload that goes into a queue without a copy in between.
const SPLIT_MIN: usize = 1024;

/// Loads a part of a payload, into `bytes` or the queue that it goes to.
fn load(
    span: RegisteredSpan<'_>,
    queue: Option<&dyn LocalQueue>,
    at: usize,
    bytes: &mut [u8],
) -> bool {
    match (queue, bytes.get_mut(at..)) {
        (Some(queue), _) => queue.place(at, span),
        (None, Some(bytes)) => {
            span.read(bytes);
            true
        }
        (None, None) => false,
    }
}

/// Stores a part of a payload: out of `bytes`, or of the queue that it stays in.
fn store(
    span: RegisteredSpan<'_>,
    queue: Option<&dyn LocalQueue>,
    at: usize,
    bytes: &[u8],
) -> bool {
    match (queue, bytes.get(at..)) {
        (Some(queue), _) => queue.take(at, span),
        (None, Some(bytes)) => {
            span.write(bytes);
            true
        }
        (None, None) => false,
    }
}

impl<'a> Access<'a> {
    /// Returns the queue that a payload of `length` bytes goes to, if any.
    fn destination(&self, length: usize) -> Option<&'a dyn LocalQueue> {
        self.queue.filter(|_| length >= SPLIT_MIN)
    }

    fn entry(&self, position: u64) -> Result<&SendEntry, LocalError> {
        let index = position.checked_sub(self.first).ok_or(LocalError)?;
        let index = usize::try_from(index).map_err(|_| LocalError)?;
        self.sends.get(index).ok_or(LocalError)
    }
}

impl RequestMemory for Access<'_> {
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        let entry = self.entry(token)?;
        if entry.is_inline {
            return self.inline.copy(token, offset, bytes);
        }
        let queue = self.destination(bytes.len());
        let range = (offset, bytes.len());
        let needed = MemoryPrivileges::LOCAL_READ;
        let each = |at, span: RegisteredSpan<'_>| load(span, queue, at, bytes);
        self.memories.each_part(
            &entry.request.segments,
            self.user.domain,
            range,
            needed,
            each,
        )?;
        if queue.is_some() {
            self.placed = bytes.len();
        }
        Ok(())
    }

    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let range = (offset, bytes.len());
        let needed = MemoryPrivileges::LOCAL_WRITE;
        let each = |at, span: RegisteredSpan<'_>| store(span, self.queue, at, bytes);
        let segments = &self.entry(token)?.request.segments;
        self.memories
            .each_part(segments, self.user.domain, range, needed, each)
    }
}

impl RemoteMemory for Access<'_> {
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError> {
        self.memories
            .remote(at, length, right, &self.user)
            .map(|_| ())
    }

    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        let length = u32::try_from(bytes.len()).map_err(|_| AccessError)?;
        let span = self.memories.remote(at, length, Right::Read, &self.user)?;
        let queue = self.destination(bytes.len());
        if !load(span, queue, 0, bytes) {
            return Err(AccessError);
        }
        if queue.is_some() {
            self.placed = bytes.len();
        }
        Ok(())
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError> {
        let length = u32::try_from(bytes.len()).map_err(|_| AccessError)?;
        let span = self.memories.remote(at, length, Right::Write, &self.user)?;
        store(span, self.queue, 0, bytes)
            .then_some(())
            .ok_or(AccessError)
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let span = self.memories.remote(at, 8, Right::Atomic, &self.user)?;
        let mut before = [0; 8];
        span.read(&mut before);
        let before = u64::from_ne_bytes(before);
        span.write(&operation.apply(before).to_ne_bytes());
        Ok(before)
    }

    fn check_invalidation(&mut self, key: u32) -> Result<(), AccessError> {
        self.memories.may_invalidate(key, self.user).map(|_| ())
    }
}

/// The receives that a queue pair takes from.
pub(crate) struct Receives<'a> {
    pub(crate) memories: &'a Memories,
    /// Domain of the segments.
    pub(crate) domain: DomainKey,
    pub(crate) own: &'a mut VecDeque<PostedReceive>,
    pub(crate) shared: Option<&'a mut SharedReceives>,
    pub(crate) current: &'a mut Option<PostedReceive>,
    /// The queue that a payload stays in.
    pub(crate) queue: Option<&'a dyn LocalQueue>,
}

impl ReceiveQueue for Receives<'_> {
    fn take(&mut self) -> Option<Receive> {
        let entry = match &mut self.shared {
            None => self.own.pop_front()?,
            Some(shared) => shared.take(0)?,
        };
        let receive = Receive {
            token: entry.token,
            length: length(&entry),
        };
        *self.current = Some(entry);
        Some(receive)
    }

    fn place(&mut self, _token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let entry = self.current.as_ref().ok_or(LocalError)?;
        let range = (offset, bytes.len());
        let needed = MemoryPrivileges::LOCAL_WRITE;
        let each = |at, span: RegisteredSpan<'_>| store(span, self.queue, at, bytes);
        self.memories
            .each_part(&entry.segments, self.domain, range, needed, each)
    }
}
