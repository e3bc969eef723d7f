//! Faults as data.

use alloc::vec::Vec;

/// Faults of a run; the same seed, plan and operations give the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct FaultPlan {
    /// Faults; each happens once, at its place.
    pub faults: Vec<Fault>,
}

/// One fault.
///
/// Adapters are numbered from 0 in the order in which they were made, completion queues by their
/// own numbers. Counts (`nth`) start at 0. Times are microseconds of the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Fault {
    /// The nth completion of a queue is never delivered.
    DropCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the completion.
        nth: u32,
    },
    /// The nth completion of a queue is delivered late; later ones overtake it.
    DelayCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the completion.
        nth: u32,
        /// Delay in microseconds.
        by: u32,
    },
    /// The nth completion of a queue is delivered twice.
    DuplicateCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the completion.
        nth: u32,
    },
    /// The nth completion of a queue is delivered after the one that follows it.
    ReorderCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the completion.
        nth: u32,
    },
    /// The nth completion of a queue finds no room, even if there is some.
    OverrunQueue {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the completion.
        nth: u32,
    },
    /// The nth notification of a queue is never raised.
    LoseNotification {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u32,
        /// Number of the notification.
        nth: u32,
    },
    /// Nothing passes between the hosts of two adapters for some time.
    LinkDown {
        /// One end.
        a: u16,
        /// The other end.
        b: u16,
        /// Start of the outage.
        at: u64,
        /// Length of the outage; `None` is forever.
        duration: Option<u32>,
    },
    /// The nth control call of an adapter that can fail finds no resources.
    AllocationFailure {
        /// The adapter.
        adapter: u16,
        /// Number of the call.
        nth: u32,
    },
    /// The device refuses the nth post of an adapter, to any of its queues.
    RefusePost {
        /// The adapter.
        adapter: u16,
        /// Number of the post.
        nth: u32,
    },
    /// The nth operation that an adapter sends to a peer is answered with an error.
    RemoteError {
        /// The adapter.
        adapter: u16,
        /// Number of the operation.
        nth: u32,
        /// The answer.
        error: RemoteError,
    },
    /// From the nth message that arrives at an adapter on, `attempts` attempts find no buffer.
    ReceiverNotReady {
        /// The adapter.
        adapter: u16,
        /// Number of the message.
        nth: u32,
        /// Number of attempts.
        attempts: u8,
    },
    /// A shared receive queue fails instead of giving a buffer.
    ///
    /// It is the nth buffer to be taken from any shared receive queue of the adapter.
    FailSharedReceive {
        /// The adapter.
        adapter: u16,
        /// Number of the buffer.
        nth: u32,
    },
    /// The host of an adapter crashes silently.
    Crash {
        /// The adapter.
        adapter: u16,
        /// Time of the crash.
        at: u64,
    },
}

/// Answer of a faulty peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum RemoteError {
    /// The access is not allowed.
    Access,
    /// The peer could not perform the operation.
    Responder,
    /// The answer does not fit the operation.
    BadResponse,
    /// No answer; the retries run out.
    Silence,
}

/// Connection that a fault hit, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// The adapter of this end.
    pub from: u16,
    /// The adapter of the other end.
    pub to: u16,
    /// True if this end requested the connection.
    pub is_initiator: bool,
}

/// A fault that had an effect.
///
/// A fault that the retries survive has none: a receiver that is ready again in time, or a link
/// that is up before the sender gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The fault as planned.
    pub fault: Fault,
    /// The connection that it hit, if it hit a single one.
    pub connection: Option<ConnectionEnd>,
}
