//! Events as the consumer gets them.

use crate::flags::DtoStatus;
use crate::id::{CrId, EpId, Handle, PspId, RmrId};

/// The operation of a completed data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DtoOperation {
    /// A Send.
    Send,
    /// An RDMA Write.
    RdmaWrite,
    /// An RDMA Read.
    RdmaRead,
    /// A Receive, from the endpoint's queue or a shared one.
    Receive,
}

/// A data transfer completed (DTO-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DtoCompletion {
    /// The endpoint it ran on; for a shared buffer the one that took it.
    pub ep: EpId,
    /// The cookie of the post.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes moved; meaningful for [`DtoStatus::Success`] only.
    pub transferred_length: u64,
    /// What it was.
    pub operation: DtoOperation,
}

/// A remote memory region bind completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrBindCompletion {
    /// The region.
    pub rmr: RmrId,
    /// The endpoint it was posted to.
    pub ep: EpId,
    /// The cookie of the bind.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
}

/// What an operation beyond the interface was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ExtendedOperation {
    /// An RDMA Write that tells the peer, with a number.
    WriteImmediate,
    /// An addition to a number at the peer.
    FetchAndAdd,
    /// An exchange of a number at the peer.
    CompareAndSwap,
    /// A receive that an RDMA Write of the peer has completed, which has put nothing into its buffer.
    ReceiveImmediate {
        /// The number that came.
        immediate: u32,
    },
}

/// An operation beyond the interface completed, of this side or of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExtendedCompletion {
    /// The endpoint it ran on.
    pub ep: EpId,
    /// The cookie of the post.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes moved; for a receive those that the peer wrote. Meaningful for [`DtoStatus::Success`] only.
    pub transferred_length: u64,
    /// What it was.
    pub operation: ExtendedOperation,
}

/// What happened to a connection; the values are the DAT event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum ConnectionEventKind {
    /// It stands.
    Established = 0x4001,
    /// The peer's consumer rejected it.
    PeerRejected = 0x4002,
    /// It was refused without the peer's consumer.
    NonPeerRejected = 0x4003,
    /// An accept could not be completed.
    AcceptCompletionError = 0x4004,
    /// It was ended, here or there.
    Disconnected = 0x4005,
    /// It failed.
    Broken = 0x4006,
    /// The timeout ran out before it stood.
    TimedOut = 0x4007,
    /// The peer's host cannot be reached.
    Unreachable = 0x4008,
}

/// What went wrong apart from any call; the values are the DAT event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum AsyncEventKind {
    /// An event was lost: its dispatcher was full.
    EvdOverflow = 0x8001,
    /// The adapter failed for good.
    IaCatastrophic = 0x8002,
    /// An endpoint or shared receive queue wants attention; the two watermark events carry this
    /// number too, told apart by handle and reason.
    EpBroken = 0x8003,
    /// Something took too long.
    TimedOut = 0x8004,
    /// The provider found a fault of its own.
    ProviderInternalError = 0x8005,
}

/// Reason of an asynchronous event on an endpoint: the soft high watermark was exceeded (EPH-02).
pub const REASON_SOFT_HIGH_WATERMARK: u32 = 2;
/// Reason of an asynchronous event on a shared receive queue: the low watermark was passed (SRL-03).
pub const REASON_LOW_WATERMARK: u32 = 2;
/// Reason 0 of every handle type: overflow, catastrophic error, transfer to error.
pub const REASON_PRIMARY: u32 = 0;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Event {
    /// A data transfer completed.
    Dto(DtoCompletion),
    /// A bind completed.
    RmrBind(RmrBindCompletion),
    /// An operation beyond the interface completed.
    Extended(ExtendedCompletion),
    /// A peer asks for a connection.
    ConnectionRequest {
        /// The public service point it came to; `None` for a reserved one, which is gone by now (RSC-03).
        service_point: Option<PspId>,
        /// The connection qualifier asked for.
        qualifier: u64,
        /// To query, accept, reject or hand off.
        cr: CrId,
    },
    /// Something happened to a connection.
    Connection {
        /// What.
        kind: ConnectionEventKind,
        /// The endpoint.
        ep: EpId,
        /// Bytes of private data that `Ia::ep_private_data` gives.
        private_data_size: u16,
    },
    /// Something happened apart from any call.
    Async {
        /// What.
        kind: AsyncEventKind,
        /// To which object.
        handle: Handle,
        /// Why; the meaning depends on the handle's kind.
        reason: u32,
    },
    /// The consumer posted it.
    Software {
        /// The consumer's value.
        pointer: u64,
    },
}

impl Event {
    /// The DAT event number.
    pub const fn number(&self) -> u32 {
        match self {
            Self::Dto(_) => 0x0_0001,
            Self::RmrBind(_) => 0x0_1001,
            // The number that DAT 2.0 has for operations of InfiniBand.
            Self::Extended(_) => 0x4_0000,
            Self::ConnectionRequest { .. } => 0x0_2001,
            Self::Connection { kind, .. } => *kind as u32,
            Self::Async { kind, .. } => *kind as u32,
            Self::Software { .. } => 0x1_0001,
        }
    }
}
