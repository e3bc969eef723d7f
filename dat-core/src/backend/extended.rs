//! Operations of some devices that DAT does not define.

use bitflags::bitflags;

use super::{RemoteRange, SendFlags};

bitflags! {
    /// Operations that a device has and DAT does not define.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Extensions: u8 {
        /// RDMA Writes that complete a receive of the peer, with a number.
        const WRITE_IMMEDIATE = 1;
        /// Addition to a number in the peer's memory.
        const FETCH_AND_ADD = 2;
        /// Conditional exchange of a number in the peer's memory.
        const COMPARE_AND_SWAP = 4;
    }
}

/// An operation that DAT does not define, for a send queue.
///
/// The completion reports errors of the remote side, as for RDMA: `RemoteAccess`, or
/// `RemoteResponder` for a number that is not at a multiple of 8.
/// [`SendQueue::post_extended`](super::SendQueue::post_extended) states which requests the queue
/// refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedSend {
    /// Writes local data to the peer's memory, and completes a receive with the number.
    WriteImmediate {
        /// Memory to write to.
        remote: RemoteRange,
        /// The number; its bytes travel in memory order.
        immediate: u32,
    },
    /// Adds to the 64-bit number at the peer; returns its old value in the local segment.
    FetchAndAdd {
        /// Location of the number, at a multiple of 8.
        remote: RemoteRange,
        /// Addend, modulo 2^64.
        add: u64,
    },
    /// Replaces the 64-bit number at the peer if it equals `compare`.
    ///
    /// Returns its old value in the local segment.
    CompareAndSwap {
        /// Location of the number, at a multiple of 8.
        remote: RemoteRange,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
}

impl ExtendedSend {
    /// Returns the capability that the operation needs.
    pub const fn extension(&self) -> Extensions {
        match self {
            Self::WriteImmediate { .. } => Extensions::WRITE_IMMEDIATE,
            Self::FetchAndAdd { .. } => Extensions::FETCH_AND_ADD,
            Self::CompareAndSwap { .. } => Extensions::COMPARE_AND_SWAP,
        }
    }
}

/// An extended request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedRequest {
    /// Token that the completion returns.
    pub token: u64,
    /// The operation.
    pub operation: ExtendedSend,
    /// Length in bytes: the sum of the segments.
    pub length: u32,
    /// Flags of the request.
    pub flags: SendFlags,
}
