//! Enumerations with their 1.2 numbers.

use crate::error::{Cause, Error, Subtype};
use core::fmt;

/// A number from outside that names no value of its enumeration.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UnknownValue(pub u32);

impl UnknownValue {
    /// The error for having found the number in the argument at this position, counted from 1 (`Spec: GEN-04`).
    pub const fn in_argument(self, position: u8) -> Error {
        Error::invalid_argument(position).because(Cause::UnknownValue)
    }
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the number {} names no value", self.0)
    }
}

impl core::error::Error for UnknownValue {}

/// An enumeration with fixed numbers that is only ever made from a number by checking it.
macro_rules! values {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant = $value,)+
        }

        impl $name {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value with this number.
            pub const fn from_value(value: u32) -> Option<Self> {
                match value {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The 1.2 number.
            pub const fn value(self) -> u32 {
                self as u32
            }
        }

        impl TryFrom<u32> for $name {
            type Error = UnknownValue;

            fn try_from(value: u32) -> Result<Self, UnknownValue> {
                Self::from_value(value).ok_or(UnknownValue(value))
            }
        }

        impl From<$name> for u32 {
            fn from(value: $name) -> Self {
                value.value()
            }
        }
    };
}

values! {
    /// How to close an adapter (`Spec: IAC-01, IAC-03`) or to disconnect an endpoint.
    pub enum CloseFlags {
        /// At once, whatever is left; the default.
        Abrupt = 0,
        /// In order, after what is pending; an adapter only if nothing is left.
        Graceful = 1,
    }
}

values! {
    /// Who makes the endpoint for a request at a public service point (`Spec: IAQ-08`).
    pub enum PspFlags {
        /// The consumer.
        Consumer = 0,
        /// The provider.
        Provider = 1,
    }
}

values! {
    /// What a local memory region is made of (`Spec: IAQ-05`).
    pub enum MemoryType {
        /// An address range of the caller.
        Virtual = 0,
        /// A range of an existing region.
        Lmr = 1,
        /// Memory shared under a cookie.
        SharedVirtual = 2,
    }
}

values! {
    /// The kinds of objects (`Spec: HTY-01`).
    pub enum HandleKind {
        /// Connection request.
        Cr = 0,
        /// Endpoint.
        Ep = 1,
        /// Event dispatcher.
        Evd = 2,
        /// Interface adapter.
        Ia = 3,
        /// Local memory region.
        Lmr = 4,
        /// Public service point.
        Psp = 5,
        /// Protection zone.
        Pz = 6,
        /// Remote memory region.
        Rmr = 7,
        /// Reserved service point.
        Rsp = 8,
        /// Consumer notification object.
        Cno = 9,
        /// Shared receive queue.
        Srq = 10,
    }
}

values! {
    /// The states of an endpoint.
    ///
    /// 1, 3, 5 and 8 are the numbers of the header's unconfigured states; they are never entered and never reported.
    pub enum EndpointState {
        /// Created or reset; quiescent.
        Unconnected = 0,
        /// Tied to a reserved service point; no request yet.
        Reserved = 2,
        /// Its reserved service point got a request: accept or reject it.
        PassiveConnectionPending = 4,
        /// Connecting.
        ActiveConnectionPending = 6,
        /// Made by the provider for a request and lent to the consumer.
        TentativeConnectionPending = 7,
        /// Data flows.
        Connected = 9,
        /// A graceful disconnect is under way.
        DisconnectPending = 10,
        /// The connection is over; posts are flushed.
        Disconnected = 11,
        /// Accepted; establishment is not finished.
        CompletionPending = 12,
    }
}

values! {
    /// The states of a shared receive queue.
    pub enum SrqState {
        /// Buffers are taken and delivered.
        Operational = 0,
        /// The queue failed.
        Error = 1,
    }
}

values! {
    /// The service an endpoint gives.
    pub enum ServiceType {
        /// Reliable, in order, between two endpoints.
        ReliableConnected = 0,
    }
}

values! {
    /// Who owns the segment list of a post until its completion (`Spec: DTO-09`).
    pub enum IovOwnership {
        /// The consumer: the list was copied.
        Consumer = 0,
        /// The provider, which leaves it unchanged.
        ProviderNoModify = 1,
        /// The provider, which may change it.
        ProviderModify = 2,
    }
}

values! {
    /// Whether a provider makes endpoints for public service points (`Spec: IAQ-08`).
    pub enum EpCreator {
        /// Never; the consumer does.
        Never = 0,
        /// When the service point asks for it.
        IfAsked = 1,
        /// Always.
        Always = 2,
    }
}

values! {
    /// How the endpoints of a provider may use protection zones.
    pub enum PzSupport {
        /// Each endpoint needs a zone of its own.
        Unique = 0,
        /// All endpoints need the same zone.
        Same = 1,
        /// Endpoints share zones as they like.
        Shareable = 2,
    }
}

values! {
    /// How a data transfer or a window bind ended (`Spec: DTO-03`).
    pub enum DtoStatus {
        /// It succeeded.
        Success = 0,
        /// The endpoint is disconnected; nothing was done.
        Flushed = 1,
        /// The message is longer than the receive buffer.
        LocalLength = 2,
        /// The endpoint cannot do the operation.
        LocalEndpoint = 3,
        /// A local context, privilege, zone or bound was violated.
        LocalProtection = 4,
        /// The answer was unexpected.
        BadResponse = 5,
        /// A remote context, privilege or bound was violated.
        RemoteAccess = 6,
        /// The peer failed to carry it out.
        RemoteResponder = 7,
        /// Retries are exhausted or the link is down.
        Transport = 8,
        /// The peer has no receive posted.
        ReceiverNotReady = 9,
        /// Part of the packet is missing.
        PartialPacket = 10,
        /// The bind failed.
        RmrOperationFailed = 11,
        /// A memory management operation failed; 2.0 only.
        LocalMemoryManagement = 12,
    }
}

impl EndpointState {
    /// The subtype that reports a call made illegal by this state.
    pub const fn subtype(self) -> Subtype {
        match self {
            Self::Unconnected => Subtype::InvalidStateEpUnconnected,
            Self::Reserved => Subtype::InvalidStateEpReserved,
            Self::PassiveConnectionPending => Subtype::InvalidStateEpPassConnPending,
            Self::ActiveConnectionPending => Subtype::InvalidStateEpActConnPending,
            Self::TentativeConnectionPending => Subtype::InvalidStateEpTentConnPending,
            Self::Connected => Subtype::InvalidStateEpConnected,
            Self::DisconnectPending => Subtype::InvalidStateEpDiscPending,
            Self::Disconnected => Subtype::InvalidStateEpDisconnected,
            Self::CompletionPending => Subtype::InvalidStateEpComplPending,
        }
    }

    /// The error of a call that this state forbids.
    pub const fn forbids(self) -> Error {
        Error::invalid_state(self.subtype()).because(Cause::EndpointState)
    }
}

impl HandleKind {
    /// The subtype that reports a bad handle of this kind (`Spec: GEN-03`).
    ///
    /// Event dispatchers have no subtype as such, only one per role; where the role is unknown, the handle is reported by
    /// its position as the first argument.
    pub const fn subtype(self) -> Subtype {
        match self {
            Self::Cr => Subtype::InvalidHandleCr,
            Self::Ep => Subtype::InvalidHandleEp,
            Self::Evd => Subtype::InvalidHandle1,
            Self::Ia => Subtype::InvalidHandleIa,
            Self::Lmr => Subtype::InvalidHandleLmr,
            Self::Psp => Subtype::InvalidHandlePsp,
            Self::Pz => Subtype::InvalidHandlePz,
            Self::Rmr => Subtype::InvalidHandleRmr,
            Self::Rsp => Subtype::InvalidHandleRsp,
            Self::Cno => Subtype::InvalidHandleCno,
            Self::Srq => Subtype::InvalidHandleSrq,
        }
    }
}
