//! Operations beyond the interface, which some devices have.

use bitflags::bitflags;

use super::{RemoteRange, SendFlags};

bitflags! {
    /// Operations beyond the interface that a device has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Extensions: u8 {
        /// RDMA Writes that tell the peer, with a number.
        const WRITE_IMMEDIATE = 1;
        /// Adding to a number at the peer.
        const FETCH_AND_ADD = 2;
        /// Exchanging a number at the peer if it is an expected one.
        const COMPARE_AND_SWAP = 4;
    }
}

/// What a send queue is asked to do beyond the interface.
///
/// What is wrong with the remote side shows in the completion, as for RDMA: `RemoteAccess`, or
/// `RemoteResponder` for a number that is not at a multiple of 8. The queue refuses such a request only
/// as [`SendQueue::post_extended`](super::SendQueue::post_extended) states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedSend {
    /// Write the local data to the peer's memory, and complete a receive of the peer with the number.
    WriteImmediate {
        /// Where to.
        remote: RemoteRange,
        /// The number, of which the bytes go as they are in memory.
        immediate: u32,
    },
    /// Add to the 64-bit number at the peer, and put what was there into the local segment.
    FetchAndAdd {
        /// The number, at a multiple of 8.
        remote: RemoteRange,
        /// What is added, modulo 2^64.
        add: u64,
    },
    /// Put what is in the 64-bit number at the peer into the local segment, and store another there if it is the expected one.
    CompareAndSwap {
        /// The number, at a multiple of 8.
        remote: RemoteRange,
        /// What is expected.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
}

impl ExtendedSend {
    /// What a device has to have for it.
    pub const fn extension(&self) -> Extensions {
        match self {
            Self::WriteImmediate { .. } => Extensions::WRITE_IMMEDIATE,
            Self::FetchAndAdd { .. } => Extensions::FETCH_AND_ADD,
            Self::CompareAndSwap { .. } => Extensions::COMPARE_AND_SWAP,
        }
    }
}

/// One request beyond the interface for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// What to do.
    pub operation: ExtendedSend,
    /// Bytes to move: the sum of the segments.
    pub length: u32,
    /// How.
    pub flags: SendFlags,
}
