//! Posted requests and receives.

use dat_core::backend::{
    BindRequest, ExtendedSend, RemoteRange, Segment, SendFlags, SendOperation,
};
use smallvec::SmallVec;

/// Segments of a request or a receive; two need no allocation.
pub type Segments = SmallVec<[Segment; 2]>;

/// Change of a number by an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a number, and wraps.
    Add(u64),
    /// Stores `swap` if the number is `compare`.
    Swap {
        /// The expected number.
        compare: u64,
        /// The new number.
        swap: u64,
    },
}

/// Operation of a posted request.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A message.
    Send,
    /// An RDMA Write.
    Write(RemoteRange),
    /// An RDMA Read.
    Read(RemoteRange),
    /// A bind, with the new remote key.
    Bind(BindRequest, u32),
    /// A write with immediate data.
    WriteImmediate(RemoteRange, u32),
    /// An atomic operation on a remote number.
    Atomic(RemoteRange, Change),
}

impl From<SendOperation> for Work {
    #[inline]
    fn from(operation: SendOperation) -> Self {
        match operation {
            SendOperation::Send => Self::Send,
            SendOperation::RdmaWrite(range) => Self::Write(range),
            SendOperation::RdmaRead(range) => Self::Read(range),
        }
    }
}

impl From<ExtendedSend> for Work {
    #[inline]
    fn from(operation: ExtendedSend) -> Self {
        match operation {
            ExtendedSend::WriteImmediate { remote, immediate } => {
                Self::WriteImmediate(remote, immediate)
            }
            ExtendedSend::FetchAndAdd { remote, add } => Self::Atomic(remote, Change::Add(add)),
            ExtendedSend::CompareAndSwap {
                remote,
                compare,
                swap,
            } => Self::Atomic(remote, Change::Swap { compare, swap }),
        }
    }
}

/// A posted request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token of the completion.
    pub token: u64,
    /// Operation.
    pub work: Work,
    /// Bytes of its segments.
    pub length: u32,
    /// Flags of the post.
    pub flags: SendFlags,
    /// Local memory.
    pub segments: Segments,
    /// True if it may start while an earlier bind is pending.
    pub overtakes_binds: bool,
}

impl Request {
    /// Returns a request without length and marks.
    #[inline]
    pub fn new(token: u64, work: Work, flags: SendFlags, segments: Segments) -> Self {
        Self {
            token,
            work,
            length: 0,
            flags,
            segments,
            overtakes_binds: false,
        }
    }
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Token of the completion.
    pub token: u64,
    /// Local memory.
    pub segments: Segments,
}
