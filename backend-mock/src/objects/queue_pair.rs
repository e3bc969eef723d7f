//! Queue pairs of an adapter.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dat_core::backend::{
    BindRequest, ConnectFailure, ControlEvent, QueuePairRequest, ReceiveInfo, RemoteRange, Segment,
    SendFlags,
};
use dat_core::flags::DtoStatus;

use super::change::Change;
use super::joining::Name;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// New or reset.
    Unconnected,
    /// A connection request is pending.
    Connecting,
    /// A request was accepted; the other side may not know yet.
    Accepting,
    /// Established.
    Connected,
    /// The connection ended or failed; all requests are flushed.
    Error,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send,
    Write(RemoteRange),
    Read(RemoteRange),
    /// A bind, with the new remote key.
    Bind(BindRequest, u32),
    /// A write with immediate data.
    WriteImmediate(RemoteRange, u32),
    /// An atomic operation on a remote number.
    Atomic(RemoteRange, Change),
}

/// A request on a send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendEntry {
    pub(crate) token: u64,
    pub(crate) work: Work,
    pub(crate) length: u32,
    pub(crate) flags: SendFlags,
    pub(crate) segments: Vec<Segment>,
    /// Bytes that an RDMA operation has moved.
    pub(crate) moved: u32,
    /// Status, once the request is done at the target.
    pub(crate) outcome: Option<DtoStatus>,
    /// True if the sender's device knows the outcome.
    pub(crate) answered: bool,
    /// True if it may start while an earlier bind is pending.
    pub(crate) overtakes_binds: bool,
}

/// A buffer on a receive queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveEntry {
    pub(crate) token: u64,
    pub(crate) segments: Vec<Segment>,
}

/// A buffer that an arriving message has taken.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) buffer: ReceiveEntry,
    /// The sender's queue pair, and the number of its request.
    pub(crate) sender: (u32, u64),
    pub(crate) length: u32,
    /// Bytes of the message that are in the buffer.
    pub(crate) moved: u32,
    pub(crate) solicited: bool,
    /// Immediate data of a write, which puts nothing into the buffer.
    pub(crate) immediate: Option<u32>,
    /// Failure of the message, known when it starts to arrive.
    pub(crate) failure: Option<DtoStatus>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) adapter: usize,
    pub(crate) token: u64,
    pub(crate) domain: u32,
    pub(crate) request_queue: Option<u32>,
    pub(crate) receive_queue: Option<u32>,
    pub(crate) shared: Option<u32>,
    pub(crate) reads_in_limit: u32,
    pub(crate) reads_out_limit: u32,
    pub(crate) request_depth: usize,
    pub(crate) receive_depth: usize,

    pub(crate) state: State,
    /// Queue pair at the other end.
    pub(crate) peer: Option<u32>,
    /// True if this end requested the connection.
    pub(crate) is_initiator: bool,
    /// Number of the connection or attempt; never used twice.
    pub(crate) connection: u64,
    /// Arrival time of the last message sent; no later one overtakes it.
    pub(crate) last_arrival: u64,

    pub(crate) sends: VecDeque<SendEntry>,
    /// Number of the oldest request in `sends`.
    pub(crate) first: u64,
    /// Number of requests in `sends` that have started.
    pub(crate) started: usize,
    pub(crate) reads_out: u32,
    /// Number of pending binds.
    pub(crate) binding: u32,
    /// Set after a failed request; no later one starts.
    pub(crate) halted: bool,
    /// Set if the next start is scheduled.
    pub(crate) ticking: bool,
    pub(crate) retries: u32,
    pub(crate) receiver_not_ready: u32,

    pub(crate) receives: VecDeque<ReceiveEntry>,
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) soft_watermark: Option<u32>,
    pub(crate) hard_watermark: Option<u32>,

    /// Number of the last completion in the request queue, and in another receive queue.
    pub(crate) last_completions: [u64; 2],
    /// Own name, if it waits to be joined.
    pub(crate) joining: Option<Name>,
    /// Emptied segment lists, for reuse.
    pub(crate) spare: Vec<Vec<Segment>>,
}

/// Converts a count that the core has checked to be non-negative.
fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

impl QueuePair {
    pub(crate) fn new(adapter: usize, request: &QueuePairRequest) -> Self {
        let mut queue_pair = Self {
            adapter,
            token: 0,
            domain: 0,
            request_queue: None,
            receive_queue: None,
            shared: None,
            reads_in_limit: 0,
            reads_out_limit: 0,
            request_depth: 0,
            receive_depth: 0,
            state: State::Unconnected,
            peer: None,
            is_initiator: false,
            connection: 0,
            last_arrival: 0,
            sends: VecDeque::new(),
            first: 0,
            started: 0,
            reads_out: 0,
            binding: 0,
            halted: false,
            ticking: false,
            retries: 0,
            receiver_not_ready: 0,
            receives: VecDeque::new(),
            arrivals: VecDeque::new(),
            soft_watermark: None,
            hard_watermark: None,
            last_completions: [0; 2],
            joining: None,
            spare: Vec::new(),
        };
        queue_pair.configure(request);
        queue_pair
    }

    /// Takes the attributes of the request.
    pub(crate) fn configure(&mut self, request: &QueuePairRequest) {
        let attributes = &request.attributes;
        self.token = request.token;
        self.domain = request.domain.0 as u32;
        let queues = (request.request_queue, request.receive_queue);
        if (self.request_queue, self.receive_queue) != queues {
            (self.request_queue, self.receive_queue) = queues;
            self.last_completions = [0; 2];
        }
        self.shared = request.shared_receive_queue.map(|key| key.0 as u32);
        self.reads_in_limit = count(attributes.max_rdma_read_in);
        self.reads_out_limit = count(attributes.max_rdma_read_out);
        self.request_depth = count(attributes.max_request_dtos) as usize;
        self.receive_depth = count(attributes.max_recv_dtos) as usize;
    }

    /// Returns the numbers of its completion queues.
    pub(crate) fn completion_queues(&self) -> impl Iterator<Item = u32> + use<> {
        let other = self
            .receive_queue
            .filter(|_| self.receive_queue != self.request_queue);
        self.request_queue.into_iter().chain(other)
    }

    /// Returns the number of its last completion in one of its completion queues.
    pub(crate) fn last_completion(&mut self, queue: u32) -> Option<&mut u64> {
        let [requests, receives] = &mut self.last_completions;
        if self.request_queue == Some(queue) {
            Some(requests)
        } else {
            (self.receive_queue == Some(queue)).then_some(receives)
        }
    }

    /// Returns the number of receive buffers that are posted or taken by a message.
    pub(crate) fn receives_outstanding(&self) -> usize {
        self.receives.len() + self.arrivals.len()
    }

    /// Returns the request with this number, unless it has completed.
    pub(crate) fn request(&mut self, number: u64) -> Option<&mut SendEntry> {
        let index = number.checked_sub(self.first)?;
        self.sends.get_mut(usize::try_from(index).ok()?)
    }

    /// Keeps an emptied segment list for reuse.
    pub(crate) fn recycle(&mut self, mut segments: Vec<Segment>) {
        segments.clear();
        if self.spare.len() < self.request_depth + self.receive_depth {
            self.spare.push(segments);
        }
    }

    pub(crate) fn receive_info(&self) -> ReceiveInfo {
        let held = self.arrivals.len() as u32;
        ReceiveInfo {
            allocated: Some(held),
            // Messages of one connection arrive in order, so the buffers in progress are
            // consecutive.
            span: Some(held),
        }
    }
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Disconnected,
    Broken,
}

/// Report of a queue pair in the error state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The connection ended.
    Ended(Ending),
    /// The connection attempt failed.
    Failed(Box<ConnectFailure>),
}

impl Notice {
    pub(crate) fn event(self, queue_pair: u64) -> ControlEvent {
        match self {
            Self::Ended(Ending::Disconnected) => ControlEvent::Disconnected { queue_pair },
            Self::Ended(Ending::Broken) => ControlEvent::Broken { queue_pair },
            Self::Failed(failure) => ControlEvent::ConnectFailed {
                queue_pair,
                failure: *failure,
            },
        }
    }
}
