//! Requests and their outcomes.

use crate::proto::memory::{AtomicOperation, RemoteAddress};

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message into a receive of the peer.
    Send {
        /// Immediate data.
        immediate: Option<[u8; 4]>,
    },
    /// Writes into memory of the peer.
    Write {
        /// Address of the destination.
        remote: RemoteAddress,
        /// Immediate data, which takes a receive of the peer.
        immediate: Option<[u8; 4]>,
    },
    /// Reads memory of the peer.
    Read {
        /// Address of the source.
        remote: RemoteAddress,
    },
    /// Changes 8 bytes of the peer and returns their value before.
    Atomic {
        /// Address of the 8 bytes.
        remote: RemoteAddress,
        /// Operation on the eight bytes.
        operation: AtomicOperation,
    },
    /// Does something on this side, in order: binds a window, or invalidates a key (ROCE-91).
    Local,
    /// Sends a message, and invalidates the key of a window of the peer.
    SendInvalidate {
        /// The key.
        key: u32,
    },
}

impl Operation {
    /// Returns true if data of the peer completes the request: a Read or an Atomic.
    pub(crate) const fn returns_data(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }

    pub(crate) const fn immediate(self) -> Option<[u8; 4]> {
        match self {
            Self::Send { immediate } | Self::Write { immediate, .. } => immediate,
            Self::SendInvalidate { .. } | Self::Read { .. } | Self::Atomic { .. } | Self::Local => {
                None
            }
        }
    }

    /// Returns true if the peer may be asked for a solicited event (ROCE-65).
    pub(crate) const fn may_solicit(self) -> bool {
        matches!(self, Self::Send { .. } | Self::SendInvalidate { .. })
            || self.immediate().is_some()
    }
}

/// A request to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the request, its local segments and its completion.
    pub token: u64,
    /// Operation.
    pub operation: Operation,
    /// Sum of the lengths of the local segments; 8 for an Atomic.
    pub length: u32,
    /// Set to wait for all earlier Reads and Atomics (ROCE-71).
    pub fence: bool,
    /// Set to solicit an event at the peer (ROCE-65).
    pub solicited: bool,
}

/// The reason why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// All slots are taken.
    Full,
    /// The message is too long (ROCE-24), or an Atomic has not 8 bytes.
    Length,
    /// The initiator depth is 0 (ROCE-70).
    Depth,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Executed and acknowledged; data of the peer is placed.
    Success,
    /// Discarded in error, without an outcome known (ROCE-86).
    Flushed,
    /// The local memory is not accessible any more (ROCE-89).
    LocalProtection,
    /// A response does not fit the request (ROCE-76).
    BadResponse,
    /// Refused as not valid.
    RemoteInvalidRequest,
    /// Refused for its key, range or right.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// No answer after all retries (ROCE-82).
    RetryExceeded,
    /// No receive at the peer after all retries (ROCE-79).
    RnrRetryExceeded,
}

/// A request that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// Its outcome.
    pub status: Status,
}
