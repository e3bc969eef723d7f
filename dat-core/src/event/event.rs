//! Events for the consumer.

use crate::flags::DtoStatus;
use crate::id::{CrId, EpId, Handle, PspId, RmrId};
use crate::operation::{DtoOperation, ExtendedOperation};

/// Completion of a data transfer (DTO-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DtoCompletion {
    /// Endpoint of the transfer; for a shared buffer, the endpoint that took it.
    pub ep: EpId,
    /// Cookie of the post.
    pub cookie: u64,
    /// Result of the transfer.
    pub status: DtoStatus,
    /// Number of bytes moved; valid for [`DtoStatus::Success`] only.
    pub transferred_length: u64,
    /// Operation of the transfer.
    pub operation: DtoOperation,
}

/// Completion of a remote memory region bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrBindCompletion {
    /// Remote memory region.
    pub rmr: RmrId,
    /// Endpoint that the bind was posted to.
    pub ep: EpId,
    /// Cookie of the bind.
    pub cookie: u64,
    /// Result of the bind.
    pub status: DtoStatus,
}

/// Completion of an extended operation, posted by this side or by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExtendedCompletion {
    /// Endpoint of the operation.
    pub ep: EpId,
    /// Cookie of the post.
    pub cookie: u64,
    /// Result of the operation.
    pub status: DtoStatus,
    /// Number of bytes moved; valid for [`DtoStatus::Success`] only.
    ///
    /// For a receive, the bytes that the peer wrote.
    pub transferred_length: u64,
    /// Operation that completed.
    pub operation: ExtendedOperation,
}

/// Kind of a connection event; the values are the DAT event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum ConnectionEventKind {
    /// The connection is established.
    Established = 0x4001,
    /// The peer's consumer rejected the connection.
    PeerRejected = 0x4002,
    /// The connection was refused without the peer's consumer.
    NonPeerRejected = 0x4003,
    /// An accept could not be completed.
    AcceptCompletionError = 0x4004,
    /// One side ended the connection.
    Disconnected = 0x4005,
    /// The connection failed.
    Broken = 0x4006,
    /// The timeout passed before the connection was established.
    TimedOut = 0x4007,
    /// The peer's host cannot be reached.
    Unreachable = 0x4008,
}

/// Kind of an asynchronous event; the values are the DAT event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum AsyncEventKind {
    /// An event was lost because its dispatcher was full.
    EvdOverflow = 0x8001,
    /// The adapter failed permanently.
    IaCatastrophic = 0x8002,
    /// An endpoint or a shared receive queue needs attention.
    ///
    /// An endpoint's connection ended (see `Ia::report_shared_ends`), a shared receive queue
    /// failed, or a watermark was passed. The handle and the reason tell these apart.
    EpBroken = 0x8003,
    /// A timeout passed.
    TimedOut = 0x8004,
    /// The provider found an internal error.
    ProviderInternalError = 0x8005,
}

/// Reason of an asynchronous event on an endpoint: the soft high watermark was exceeded (EPH-02).
pub const REASON_SOFT_HIGH_WATERMARK: u32 = 2;
/// Reason of an asynchronous event on a shared receive queue: too few buffers are left (SRL-03).
pub const REASON_LOW_WATERMARK: u32 = 2;
/// Reason 0 of every handle kind: overflow, catastrophic error, transition to error.
pub const REASON_PRIMARY: u32 = 0;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Event {
    /// A data transfer completed.
    Dto(DtoCompletion),
    /// A bind completed.
    RmrBind(RmrBindCompletion),
    /// An extended operation completed.
    Extended(ExtendedCompletion),
    /// A peer requests a connection.
    ConnectionRequest {
        /// Public service point of the request.
        ///
        /// `None` for a reserved one, which the request used up (RSC-03).
        service_point: Option<PspId>,
        /// Connection qualifier of the request.
        qualifier: u64,
        /// Connection request to query, accept, reject or hand off.
        cr: CrId,
    },
    /// A connection changed state.
    Connection {
        /// Kind of the event.
        kind: ConnectionEventKind,
        /// Endpoint of the connection.
        ep: EpId,
        /// Length in bytes of the private data that `Ia::ep_private_data` returns.
        private_data_size: u16,
    },
    /// An error or a watermark, independent of any call.
    Async {
        /// Kind of the event.
        kind: AsyncEventKind,
        /// Object of the event.
        handle: Handle,
        /// Reason; its meaning depends on the handle's kind.
        reason: u32,
    },
    /// An event that the consumer posted.
    Software {
        /// Value that the consumer posted.
        pointer: u64,
    },
}

impl Event {
    /// Returns the DAT event number.
    pub const fn number(&self) -> u32 {
        match self {
            Self::Dto(_) => 0x0_0001,
            Self::RmrBind(_) => 0x0_1001,
            // DAT 2.0's number for InfiniBand extensions.
            Self::Extended(_) => 0x4_0000,
            Self::ConnectionRequest { .. } => 0x0_2001,
            Self::Connection { kind, .. } => *kind as u32,
            Self::Async { kind, .. } => *kind as u32,
            Self::Software { .. } => 0x1_0001,
        }
    }
}
