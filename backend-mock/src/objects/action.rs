//! Scheduled actions, and the messages that some of them deliver.

use alloc::boxed::Box;

use dat_core::attributes::IaAddress;
use dat_core::backend::{ConnectFailure, PrivateData};

use super::completions::Entry;
use super::queue_pair::Ending;

/// A scheduled action; when it runs, it checks that its objects still exist.
#[derive(Debug)]
pub(crate) enum Action {
    /// A queue pair starts its next request.
    Start { key: u32, connection: u64 },
    /// The answer to a request reaches the sender.
    Answer {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// An answer to an RDMA Read or an atomic operation arrives, entirely or partly.
    Response {
        key: u32,
        connection: u64,
        number: u64,
        placed: bool,
    },
    /// An RDMA Read or an atomic operation without an answer fails.
    GiveUp {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// A piece of the oldest message in progress at a queue pair arrives.
    Place { key: u32, connection: u64 },
    /// A bind is performed.
    Bound {
        key: u32,
        connection: u64,
        number: u64,
    },
    /// A delayed completion is delivered.
    Deliver {
        adapter: usize,
        number: u32,
        entry: Entry,
    },
    /// A completion that is kept back is delivered, as none overtook it in time.
    Release { adapter: usize, number: u32 },
    /// The queue pairs that use an overrun completion queue break.
    Overrun { adapter: usize, number: u32 },
    /// A message about a connection arrives.
    Message(Box<Message>),
    /// An accepting side stops waiting for the connection.
    AcceptTimeout { key: u32, connection: u64 },
    /// A host crashes.
    Crash { adapter: u16 },
}

/// Content of a message between hosts about a connection.
#[derive(Debug)]
pub(crate) enum Content {
    Request {
        active: u32,
        qualifier: u64,
        remote: IaAddress,
        remote_port: u64,
        private_data: PrivateData,
    },
    Answered {
        active: u32,
    },
    Accepted {
        active: u32,
        passive: u32,
        private_data: PrivateData,
    },
    Refused {
        active: u32,
        failure: ConnectFailure,
    },
    Ready {
        passive: u32,
    },
    Withdrawn {
        passive: u32,
    },
    Ended {
        queue_pair: u32,
        ending: Ending,
    },
}

/// A message in transit.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) connection: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) content: Content,
}
