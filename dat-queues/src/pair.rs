//! The state of queue pairs that all executors have.

use dat_core::backend::{Completion, DomainKey, QueuePairRequest, SharedReceiveQueueKey};
use dat_core::flags::DtoStatus;

use crate::request::{Change, Request, Work};
use crate::ring::{Detail, Entry, Kind, Opcode};

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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

impl State {
    /// Returns true if there is a connection or an attempt.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Connecting | Self::Accepting | Self::Connected)
    }

    /// Returns true if requests can be posted.
    pub const fn takes_requests(self) -> bool {
        matches!(self, Self::Connected | Self::Error)
    }
}

/// Objects and limits that a queue pair was made with, or changed to.
#[derive(Clone, Copy, Debug)]
pub struct PairSetup {
    /// Token of its events and completions.
    pub token: u64,
    /// Protection domain.
    pub domain: DomainKey,
    /// Number of the completion queue of requests.
    pub request_queue: Option<u32>,
    /// Number of the completion queue of receives.
    pub receive_queue: Option<u32>,
    /// The shared receive queue that it takes from.
    pub shared: Option<SharedReceiveQueueKey>,
    /// Most requests.
    pub request_depth: usize,
    /// Most receives.
    pub receive_depth: usize,
    /// Most RDMA Reads of the peer that are answered at a time.
    pub reads_in: u32,
    /// Most RDMA Reads under way.
    pub reads_out: u32,
}

/// Converts a count that the core has checked to be non-negative.
fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

impl PairSetup {
    /// Takes the attributes of a request.
    pub fn new(request: &QueuePairRequest) -> Self {
        let attributes = &request.attributes;
        Self {
            token: request.token,
            domain: request.domain,
            request_queue: request.request_queue,
            receive_queue: request.receive_queue,
            shared: request.shared_receive_queue,
            request_depth: count(attributes.max_request_dtos) as usize,
            receive_depth: count(attributes.max_recv_dtos) as usize,
            reads_in: count(attributes.max_rdma_read_in),
            reads_out: count(attributes.max_rdma_read_out),
        }
    }

    /// Returns the numbers of the completion queues.
    pub fn completion_queues(&self) -> impl Iterator<Item = u32> + use<> {
        let other = self
            .receive_queue
            .filter(|_| self.receive_queue != self.request_queue);
        self.request_queue.into_iter().chain(other)
    }

    /// Returns the completion of a request of the queue pair `owner`.
    #[inline]
    pub const fn request_done<K: Copy>(
        &self,
        owner: K,
        request: &Request,
        status: DtoStatus,
    ) -> Entry<K> {
        let opcode = match request.work {
            Work::Send => Opcode::Send,
            Work::Write(_) | Work::WriteImmediate(..) => Opcode::Write,
            Work::Read(_) => Opcode::Read,
            Work::Atomic(_, Change::Add(_)) => Opcode::FetchAdd,
            Work::Atomic(_, Change::Swap { .. }) => Opcode::CompareSwap,
            Work::Bind(..) => Opcode::Bind,
        };
        let what = (Kind::Request, opcode);
        self.done(owner, request.token, status, request.length, what)
    }

    /// Returns the completion of a receive of the queue pair `owner`, without immediate data and
    /// not solicited.
    #[inline]
    pub const fn receive_done<K: Copy>(
        &self,
        owner: K,
        token: u64,
        status: DtoStatus,
        length: u32,
    ) -> Entry<K> {
        let kind = match self.shared {
            Some(_) => Kind::SharedReceive,
            None => Kind::Receive,
        };
        self.done(owner, token, status, length, (kind, Opcode::Receive))
    }

    const fn done<K: Copy>(
        &self,
        owner: K,
        token: u64,
        status: DtoStatus,
        length: u32,
        (kind, opcode): (Kind, Opcode),
    ) -> Entry<K> {
        Entry {
            owner,
            completion: Completion {
                token,
                status,
                length,
                queue_pair: self.token,
                solicited: false,
            },
            immediate: None,
            kind,
            opcode,
            source: 0,
            detail: Detail::None,
            extra: false,
        }
    }
}

/// Numbers of receives that messages of a queue pair may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watermarks {
    /// With more, an event is raised once.
    pub soft: Option<u32>,
    /// With more, the connection breaks.
    pub hard: Option<u32>,
}

impl Watermarks {
    /// Returns true for each watermark, soft and hard, that `held` receives exceed; disarms the
    /// soft one then (`Spec: EPH-02, EPH-03`).
    pub fn exceeded(&mut self, held: u32) -> (bool, bool) {
        let above = |limit: Option<u32>| limit.is_some_and(|limit| held > limit);
        (
            self.soft.take_if(|limit| held > *limit).is_some(),
            above(self.hard),
        )
    }
}
