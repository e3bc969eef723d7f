//! Queue pairs of an adapter.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    BindRequest, Completion, QueuePairRequest, RemoteRange, Segment, SendFlags,
};
use dat_core::flags::DtoStatus;
use dat_core::time::Instant;
use smallvec::SmallVec;

use super::buffers::Share;
use super::memories::Memories;
use crate::proto::memory::{
    AccessError, AtomicOperation, LocalError, Receive, ReceiveQueue, RemoteAddress, RemoteMemory,
    RequestMemory, Right,
};
use crate::proto::queue_pair::QueuePair;
use crate::proto::requester::{Operation, Request, RequestSlot, Status};
use crate::proto::responder::{ReceiveStatus, ResourceSlot};

/// Most segments of a request.
pub(crate) const SEGMENTS: usize = 32;

/// Segments of a request, at most [`SEGMENTS`]; few of them need no allocation.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// New or reset.
    Unconnected,
    /// A connection request is pending.
    Connecting,
    /// A request was accepted; the peer may not know yet.
    Accepting,
    /// Established.
    Connected,
    /// The connection ended or failed; all requests are flushed.
    Error,
}

/// Operation of a posted request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send,
    Write(RemoteRange),
    Read(RemoteRange),
    WriteImmediate(RemoteRange, u32),
    Atomic(RemoteRange, AtomicOperation),
    /// A bind, with the new key of the window.
    Bind(BindRequest, u32),
    /// A probe of the peer, which has no completion.
    Probe,
}

impl Work {
    fn operation(self) -> Operation {
        let at = |range: RemoteRange| RemoteAddress {
            key: range.key,
            address: range.address,
        };
        match self {
            Self::Send => Operation::Send { immediate: None },
            Self::Write(range) => Operation::Write {
                remote: at(range),
                immediate: None,
            },
            Self::WriteImmediate(range, number) => Operation::Write {
                remote: at(range),
                immediate: Some(number.to_ne_bytes()),
            },
            Self::Read(range) => Operation::Read { remote: at(range) },
            Self::Atomic(range, operation) => Operation::Atomic {
                remote: at(range),
                operation,
            },
            Self::Bind(..) => Operation::Local,
            // A Write of 0 bytes needs no key (ROCE-111).
            Self::Probe => Operation::Write {
                remote: RemoteAddress { key: 0, address: 0 },
                immediate: None,
            },
        }
    }
}

/// A posted request.
#[derive(Clone, Debug)]
pub(crate) struct SendEntry {
    pub(crate) token: u64,
    pub(crate) work: Work,
    pub(crate) length: u32,
    pub(crate) flags: SendFlags,
    pub(crate) segments: Segments,
}

impl SendEntry {
    /// Returns a probe of the peer.
    pub(crate) fn probe() -> Self {
        Self {
            token: 0,
            work: Work::Probe,
            length: 0,
            flags: SendFlags::empty(),
            segments: Segments::new(),
        }
    }

    /// Returns the request of the transport; `position` names it.
    pub(crate) fn request(&self, position: u64) -> Request {
        Request {
            token: position,
            operation: self.work.operation(),
            length: self.length,
            fence: self.flags.contains(SendFlags::FENCE),
            solicited: self.flags.contains(SendFlags::SOLICITED),
        }
    }

    /// Returns the status of the completion.
    pub(crate) fn status(&self, status: Status) -> DtoStatus {
        match status {
            Status::Success => DtoStatus::Success,
            Status::Flushed => DtoStatus::Flushed,
            Status::LocalProtection if matches!(self.work, Work::Bind(..)) => {
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

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveEntry {
    pub(crate) token: u64,
    pub(crate) segments: Segments,
}

impl ReceiveEntry {
    fn length(&self) -> u32 {
        let lengths = self.segments.iter().map(|segment| segment.length);
        lengths.fold(0, u32::saturating_add)
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    pub(crate) token: u64,
    pub(crate) domain: usize,
    pub(crate) buffers: VecDeque<ReceiveEntry>,
    /// Buffers that messages under way have taken.
    pub(crate) taken: usize,
    /// Limit of an armed queue; 0 if it is not armed.
    pub(crate) limit: u32,
    /// Set once fewer buffers than the limit were left.
    pub(crate) is_low: bool,
}

impl SharedReceives {
    pub(crate) fn outstanding(&self) -> usize {
        self.buffers.len() + self.taken
    }

    /// Disarms the limit and notes it if fewer buffers are left.
    pub(crate) fn check_limit(&mut self) {
        if (self.buffers.len() as u64) < u64::from(self.limit) {
            self.limit = 0;
            self.is_low = true;
        }
    }
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) token: u64,
    pub(crate) domain: usize,
    pub(crate) request_queue: Option<u32>,
    pub(crate) receive_queue: Option<u32>,
    pub(crate) shared: Option<usize>,
    pub(crate) request_depth: usize,
    pub(crate) receive_depth: usize,
    /// Reads and Atomics of the peer that are answered at a time.
    pub(crate) reads_in: u8,
    /// Reads and Atomics that may be under way.
    pub(crate) reads_out: u8,
    pub(crate) state: State,
    /// Room for the requests of the next connection.
    request_slots: Vec<RequestSlot>,
    /// Room for the Reads and Atomics of the peer of the next connection.
    resource_slots: Vec<ResourceSlot>,
    /// The transport of a connection, until the queue pair is reset.
    pub(crate) transport: Option<QueuePair<'static>>,
    /// Share of the connection's socket buffers.
    pub(crate) share: Option<Share>,
    /// Communication id of the connection.
    pub(crate) link: Option<u32>,
    /// Posted requests that are not complete, and probes.
    pub(crate) sends: VecDeque<SendEntry>,
    /// Number of probes among them.
    pub(crate) probes: usize,
    /// Silence of the peer after which it is probed.
    pub(crate) keep_alive: Option<Duration>,
    /// Time of the last packet of the peer.
    pub(crate) heard: Instant,
    /// Position of the oldest one.
    pub(crate) first: u64,
    pub(crate) receives: VecDeque<ReceiveEntry>,
    /// The receive of the message under way.
    pub(crate) current: Option<ReceiveEntry>,
    pub(crate) soft_watermark: Option<u32>,
    pub(crate) hard_watermark: Option<u32>,
    /// Set while the queue pair waits for its turn to send.
    pub(crate) is_ready: bool,
    /// Set while requests may wait for the consumer (ROCE-185).
    pub(crate) is_gathering: bool,
    /// Set from a failure of the transport until its last packet is sent.
    pub(crate) is_failing: bool,
}

/// Converts a count that the core has checked.
fn count(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

impl Pair {
    /// Returns the number of the consumer's requests that are not complete.
    pub(crate) fn posted(&self) -> usize {
        self.sends.len() - self.probes
    }

    /// Makes a queue pair; `None` if there is no memory for its requests and receives.
    pub(crate) fn new(request: &QueuePairRequest) -> Option<Self> {
        let mut pair = Self {
            token: 0,
            domain: 0,
            request_queue: None,
            receive_queue: None,
            shared: None,
            request_depth: 0,
            receive_depth: 0,
            reads_in: 0,
            reads_out: 0,
            state: State::Unconnected,
            request_slots: Vec::new(),
            resource_slots: Vec::new(),
            transport: None,
            share: None,
            link: None,
            sends: VecDeque::new(),
            probes: 0,
            keep_alive: None,
            heard: Instant::ZERO,
            first: 0,
            receives: VecDeque::new(),
            current: None,
            soft_watermark: None,
            hard_watermark: None,
            is_ready: false,
            is_gathering: false,
            is_failing: false,
        };
        let has_room = pair.reserve(&request.attributes);
        pair.configure(request);
        has_room.then_some(pair)
    }

    /// Makes room for the requests and receives that the attributes allow, and a probe; false if
    /// there is no memory.
    pub(crate) fn reserve(&mut self, attributes: &EpAttributes) -> bool {
        let requests = count(attributes.max_request_dtos) + 1;
        let receives = count(attributes.max_recv_dtos);
        let more = |needed: usize, used: usize| needed.saturating_sub(used);
        let (sends, own) = (&mut self.sends, &mut self.receives);
        sends.try_reserve(more(requests, sends.len())).is_ok()
            && own.try_reserve(more(receives, own.len())).is_ok()
    }

    /// Makes room for the state of a connection; false if there is no memory.
    pub(crate) fn reserve_transport(&mut self) -> bool {
        let (requests, resources) = (&mut self.request_slots, &mut self.resource_slots);
        let slots = (self.request_depth + 1).next_power_of_two();
        requests.try_reserve_exact(slots).is_ok()
            && resources.try_reserve_exact(self.reads_in.into()).is_ok()
    }

    /// Takes the room for the state of a connection with `probes` probes at a time.
    pub(crate) fn transport_slots(
        &mut self,
        probes: usize,
        resources: usize,
    ) -> (Vec<RequestSlot>, Vec<ResourceSlot>) {
        let requests = (self.request_depth + probes).max(1).next_power_of_two();
        let mut slots = core::mem::take(&mut self.request_slots);
        slots.resize(requests, RequestSlot::EMPTY);
        let mut answers = core::mem::take(&mut self.resource_slots);
        answers.resize(resources, ResourceSlot::EMPTY);
        (slots, answers)
    }

    /// Takes the attributes of the request.
    pub(crate) fn configure(&mut self, request: &QueuePairRequest) {
        let attributes = &request.attributes;
        self.token = request.token;
        self.domain = request.domain.0;
        self.request_queue = request.request_queue;
        self.receive_queue = request.receive_queue;
        self.shared = request.shared_receive_queue.map(|key| key.0);
        self.request_depth = count(attributes.max_request_dtos);
        self.receive_depth = count(attributes.max_recv_dtos);
        self.reads_in = count(attributes.max_rdma_read_in)
            .try_into()
            .unwrap_or(u8::MAX);
        self.reads_out = count(attributes.max_rdma_read_out)
            .try_into()
            .unwrap_or(u8::MAX);
    }

    /// Returns the numbers of its completion queues.
    pub(crate) fn completion_queues(&self) -> impl Iterator<Item = u32> + use<> {
        let other = self
            .receive_queue
            .filter(|_| self.receive_queue != self.request_queue);
        self.request_queue.into_iter().chain(other)
    }

    /// Returns the completion of a request or receive.
    pub(crate) const fn completion(
        &self,
        token: u64,
        status: DtoStatus,
        length: u32,
    ) -> Completion {
        Completion {
            token,
            status,
            length,
            queue_pair: self.token,
            solicited: false,
        }
    }

    /// Returns the transport, with the memory that its halves may access.
    pub(crate) fn access<'a>(
        &'a mut self,
        memories: &'a Memories,
    ) -> Option<(&'a mut QueuePair<'static>, Access<'a>)> {
        let access = Access {
            memories,
            domain: self.domain,
            sends: &self.sends,
            first: self.first,
        };
        Some((self.transport.as_mut()?, access))
    }

    /// Returns true if the queue pair has a connection or an attempt.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(
            self.state,
            State::Connecting | State::Accepting | State::Connected
        )
    }
}

/// The memory that the halves of a queue pair may access.
pub(crate) struct Access<'a> {
    pub(crate) memories: &'a Memories,
    pub(crate) domain: usize,
    pub(crate) sends: &'a VecDeque<SendEntry>,
    pub(crate) first: u64,
}

impl Access<'_> {
    fn segments(&self, position: u64) -> Result<&[Segment], LocalError> {
        let index = position.checked_sub(self.first).ok_or(LocalError)?;
        let index = usize::try_from(index).map_err(|_| LocalError)?;
        let entry = self.sends.get(index).ok_or(LocalError)?;
        Ok(&entry.segments)
    }
}

impl RequestMemory for Access<'_> {
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        let segments = self.segments(token)?;
        self.memories.gather(segments, self.domain, offset, bytes)
    }

    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let segments = self.segments(token)?;
        self.memories.scatter(segments, self.domain, offset, bytes)
    }
}

impl RemoteMemory for Access<'_> {
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError> {
        self.memories
            .remote(at, length, right, self.domain)
            .map(|_| ())
    }

    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        let length = u32::try_from(bytes.len()).map_err(|_| AccessError)?;
        let span = self.memories.remote(at, length, Right::Read, self.domain)?;
        span.read(bytes);
        Ok(())
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError> {
        let length = u32::try_from(bytes.len()).map_err(|_| AccessError)?;
        let span = self
            .memories
            .remote(at, length, Right::Write, self.domain)?;
        span.write(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let span = self.memories.remote(at, 8, Right::Atomic, self.domain)?;
        let mut before = [0; 8];
        span.read(&mut before);
        let before = u64::from_ne_bytes(before);
        span.write(&operation.apply(before).to_ne_bytes());
        Ok(before)
    }
}

/// The receives that a queue pair takes from.
pub(crate) struct Receives<'a> {
    pub(crate) memories: &'a Memories,
    /// Domain of the segments.
    pub(crate) domain: usize,
    pub(crate) own: &'a mut VecDeque<ReceiveEntry>,
    pub(crate) shared: Option<&'a mut SharedReceives>,
    pub(crate) current: &'a mut Option<ReceiveEntry>,
}

impl ReceiveQueue for Receives<'_> {
    fn take(&mut self) -> Option<Receive> {
        let entry = match &mut self.shared {
            None => self.own.pop_front()?,
            Some(shared) => {
                let entry = shared.buffers.pop_front()?;
                shared.taken += 1;
                shared.check_limit();
                entry
            }
        };
        let receive = Receive {
            token: entry.token,
            length: entry.length(),
        };
        *self.current = Some(entry);
        Some(receive)
    }

    fn place(&mut self, _token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let entry = self.current.as_ref().ok_or(LocalError)?;
        self.memories
            .scatter(&entry.segments, self.domain, offset, bytes)
    }
}
