//! Enumerations with their 1.2 numbers.

use crate::error::{Cause, Error, Subtype};
use core::fmt;

/// A number from outside that names no value of its enumeration.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UnknownValue(pub u32);

impl UnknownValue {
    /// Returns the error for this number in an argument; positions count from 1 (`Spec: GEN-04`).
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

/// Defines an enumeration with fixed numbers and checked conversion from a number.
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
            /// All values, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the value with this number.
            pub const fn from_value(value: u32) -> Option<Self> {
                match value {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Returns the 1.2 number.
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
    /// Mode of closing an adapter (`Spec: IAC-01, IAC-03`) or disconnecting an endpoint.
    pub enum CloseFlags {
        /// Closes at once, with objects or requests left; the default.
        Abrupt = 0,
        /// Disconnects after pending requests; closes an adapter only if its objects are freed.
        Graceful = 1,
    }
}

values! {
    /// Creator of the endpoint for a request at a public service point (`Spec: IAQ-08`).
    pub enum PspFlags {
        /// The consumer.
        Consumer = 0,
        /// The provider.
        Provider = 1,
    }
}

values! {
    /// Source of a local memory region (`Spec: IAQ-05`).
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
    /// Kinds of objects (`Spec: HTY-01`).
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
    /// States of an endpoint.
    ///
    /// 1, 3, 5 and 8 are the numbers of the header's unconfigured states; the core never enters or
    /// reports them.
    pub enum EndpointState {
        /// Created or reset; quiescent.
        Unconnected = 0,
        /// Tied to a reserved service point; no request yet.
        Reserved = 2,
        /// Its reserved service point received a request, to be accepted or rejected.
        PassiveConnectionPending = 4,
        /// Connecting.
        ActiveConnectionPending = 6,
        /// Made by the provider for a request and lent to the consumer.
        TentativeConnectionPending = 7,
        /// Connected; data flows.
        Connected = 9,
        /// A graceful disconnect is in progress.
        DisconnectPending = 10,
        /// The connection is over; posts are flushed.
        Disconnected = 11,
        /// Accepted; establishment is not finished.
        CompletionPending = 12,
    }
}

values! {
    /// States of a shared receive queue.
    pub enum SrqState {
        /// The queue accepts and delivers buffers.
        Operational = 0,
        /// The queue failed.
        Error = 1,
    }
}

values! {
    /// Service of an endpoint.
    pub enum ServiceType {
        /// Reliable, in order, between two endpoints.
        ReliableConnected = 0,
    }
}

values! {
    /// Owner of the segment list of a post until its completion (`Spec: DTO-09`).
    pub enum IovOwnership {
        /// The consumer: the list was copied.
        Consumer = 0,
        /// The provider, which does not change the list.
        ProviderNoModify = 1,
        /// The provider, which may change the list.
        ProviderModify = 2,
    }
}

values! {
    /// Conditions for a provider to make endpoints for public service points (`Spec: IAQ-08`).
    pub enum EpCreator {
        /// Never; the consumer does.
        Never = 0,
        /// If the service point requests it.
        IfAsked = 1,
        /// Always.
        Always = 2,
    }
}

values! {
    /// Rules for the protection zones of a provider's endpoints.
    pub enum PzSupport {
        /// Each endpoint needs a zone of its own.
        Unique = 0,
        /// All endpoints need the same zone.
        Same = 1,
        /// Endpoints may share zones freely.
        Shareable = 2,
    }
}

values! {
    /// Result of a data transfer or a window bind (`Spec: DTO-03`).
    pub enum DtoStatus {
        /// Success.
        Success = 0,
        /// The endpoint is disconnected; the operation was not done.
        Flushed = 1,
        /// The message is longer than the receive buffer.
        LocalLength = 2,
        /// The endpoint does not support the operation.
        LocalEndpoint = 3,
        /// A local context, privilege, zone or bound was violated.
        LocalProtection = 4,
        /// The response was unexpected.
        BadResponse = 5,
        /// A remote context, privilege or bound was violated.
        RemoteAccess = 6,
        /// The peer failed to carry out the operation.
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
    /// Returns the subtype that reports a call made illegal by this state.
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

    /// Returns the error of a call that this state forbids.
    pub const fn forbids(self) -> Error {
        Error::invalid_state(self.subtype()).because(Cause::EndpointState)
    }
}

impl HandleKind {
    /// Returns the subtype that reports a bad handle of this kind (`Spec: GEN-03`).
    ///
    /// Event dispatchers have no subtype of their own, only one per role. If the role is unknown,
    /// the subtype is that of the first argument's handle.
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
