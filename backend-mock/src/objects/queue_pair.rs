//! Queue pairs of an adapter.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use dat_core::backend::{ConnectFailure, ControlEvent, QueuePairRequest, ReceiveInfo};
use dat_core::flags::DtoStatus;
use dat_queues::{PairSetup, Receive, Request, State, Watermarks};

use super::joining::Name;

/// A request on a send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendEntry {
    pub(crate) request: Request,
    /// Bytes that an RDMA operation has moved.
    pub(crate) moved: u32,
    /// Status, once the request is done at the target.
    pub(crate) outcome: Option<DtoStatus>,
    /// True if the sender's device knows the outcome.
    pub(crate) answered: bool,
}

impl SendEntry {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            moved: 0,
            outcome: None,
            answered: false,
        }
    }
}

/// A buffer that an arriving message has taken.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) buffer: Receive,
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
    pub(crate) setup: PairSetup,

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

    pub(crate) receives: VecDeque<Receive>,
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) watermarks: Watermarks,

    /// Own name, if it waits to be joined.
    pub(crate) joining: Option<Name>,
}

impl QueuePair {
    pub(crate) fn new(adapter: usize, request: &QueuePairRequest) -> Self {
        Self {
            adapter,
            setup: PairSetup::new(request),
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
            watermarks: Watermarks::default(),
            joining: None,
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
