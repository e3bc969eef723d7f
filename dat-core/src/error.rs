//! Why a call failed: the DAT return type and subtype, and a finer cause.
//!
//! An [`Error`] takes four bytes and knows no ABI. [`Error::code`] is the one place where the 32-bit `DAT_RETURN` of either
//! ABI is put together, so that the error class bit cannot be forgotten (`Spec: GEN-01`).

use core::fmt;
use core::num::NonZeroU32;

/// Result of every fallible call of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// The class bits of an error in a `DAT_RETURN`.
const CLASS_ERROR: u32 = 0x8000_0000;
/// All class bits.
const CLASS_MASK: u32 = 0xC000_0000;
/// The type bits.
const TYPE_MASK: u32 = 0x3FFF_0000;
/// The subtype bits.
const SUBTYPE_MASK: u32 = 0x0000_FFFF;
/// Where the type starts.
const TYPE_SHIFT: u32 = 16;
/// Where the kind starts in an [`Error`], which has the cause in its lowest byte.
const KIND_SHIFT: u32 = 16;
const CAUSE_MASK: u32 = 0xFF;
/// Where the subtype starts there.
const SUBTYPE_SHIFT: u32 = 8;
/// The 2.0 type number of [`ErrorKind::NotImplemented`].
const NOT_IMPLEMENTED_2_0: u16 = 0x3FFF;

/// Which binary interface a return code is meant for.
///
/// The two number their subtypes differently from `INVALID_HANDLE_CSP` on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Abi {
    /// uDAPL 1.2.
    V1_2,
    /// uDAPL 2.0.
    V2_0,
}

/// An enumeration with fixed numbers, a list of its values, and the way back from the number.
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $number:ty {
            $($(#[$variant_attribute:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum $name {
            $($(#[$variant_attribute])* $variant = $value,)+
        }

        impl $name {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value with this discriminant.
            const fn from_discriminant(number: $number) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// What went wrong: every DAT return type except success.
    ///
    /// The discriminant is the 1.2 type value shifted right by 16.
    #[repr(u16)]
    pub enum ErrorKind: u16 {
        /// The call was abandoned.
        Abort = 1,
        /// The connection qualifier is taken.
        ConnQualInUse = 2,
        /// A resource limit was reached.
        InsufficientResources = 3,
        /// The provider found a fault of its own (`Spec: GEN-02`).
        InternalError = 4,
        /// A handle is null, of another kind, stale or foreign.
        InvalidHandle = 5,
        /// An argument is bad; the subtype names its position.
        InvalidParameter = 6,
        /// The object is in a state in which the call is illegal.
        InvalidState = 7,
        /// The lengths of source and destination do not fit.
        LengthError = 8,
        /// The provider does not support the requested model.
        ModelNotSupported = 9,
        /// No provider matches (also called name not found).
        ProviderNotFound = 10,
        /// A region is unknown or lacks the privilege.
        PrivilegesViolation = 11,
        /// Protection zones differ.
        ProtectionViolation = 12,
        /// No event is queued.
        QueueEmpty = 13,
        /// The event queue has no room.
        QueueFull = 14,
        /// The time ran out.
        TimeoutExpired = 15,
        /// The provider is registered already.
        ProviderAlreadyRegistered = 0x10,
        /// An adapter of the provider is open.
        ProviderInUse = 0x11,
        /// The address cannot be used.
        InvalidAddress = 0x12,
        /// The call was interrupted.
        InterruptedCall = 0x13,
        /// No connection qualifier is available.
        ConnQualUnavailable = 0x14,
        /// The context is the reserved local region; 2.0 only.
        ReservedLmr = 0x15,
        /// The port is taken; 2.0 only.
        PortInUse = 0x16,
        /// The communication type is not supported; 2.0 only.
        CommNotSupported = 0x17,
        /// The operation is not there (yet); the number is the 1.2 one.
        NotImplemented = 0x0FFF,
    }
}

impl ErrorKind {
    /// The type number in an ABI, unshifted.
    ///
    /// The three types that only 2.0 knows are sent to 1.2 callers as their nearest relatives.
    const fn number(self, abi: Abi) -> u16 {
        match (abi, self) {
            (Abi::V2_0, Self::NotImplemented) => NOT_IMPLEMENTED_2_0,
            (Abi::V1_2, Self::ReservedLmr) => Self::PrivilegesViolation as u16,
            (Abi::V1_2, Self::PortInUse) => Self::ConnQualInUse as u16,
            (Abi::V1_2, Self::CommNotSupported) => Self::ModelNotSupported as u16,
            (_, kind) => kind as u16,
        }
    }

    /// The type with this number in an ABI.
    const fn from_number(number: u16, abi: Abi) -> Option<Self> {
        let kind = match (abi, number) {
            (Abi::V2_0, NOT_IMPLEMENTED_2_0) => return Some(Self::NotImplemented),
            _ => Self::from_discriminant(number),
        };
        match (abi, kind) {
            (Abi::V2_0, Some(Self::NotImplemented)) => None,
            (Abi::V1_2, Some(Self::ReservedLmr | Self::PortInUse | Self::CommNotSupported)) => None,
            _ => kind,
        }
    }
}

numbered! {
    /// Which object, argument, state or resource an error is about: the DAT subtypes of 1.2 and 2.0 together.
    ///
    /// The discriminant is the 1.2 value; the two that only 2.0 has lie above the 1.2 range.
    #[repr(u8)]
    pub enum Subtype: u8 {
        /// No further detail.
        NoSubtype = 0,
        /// Interrupted.
        SubInterrupted = 1,
        /// Host memory exhausted.
        ResourceMemory = 2,
        /// Device resources exhausted.
        ResourceDevice = 3,
        /// Transport endpoints exhausted.
        ResourceTep = 4,
        /// Transport event dispatchers, or room for their events, exhausted.
        ResourceTevd = 5,
        /// Protection domains exhausted.
        ResourceProtectionDomain = 6,
        /// Memory regions exhausted.
        ResourceMemoryRegion = 7,
        /// Error handlers exhausted.
        ResourceErrorHandler = 8,
        /// Credits exhausted.
        ResourceCredits = 9,
        /// Shared receive queues exhausted.
        ResourceSrq = 10,
        /// Interface adapter handle.
        InvalidHandleIa = 11,
        /// Endpoint handle.
        InvalidHandleEp = 12,
        /// Local memory region handle.
        InvalidHandleLmr = 13,
        /// Remote memory region handle.
        InvalidHandleRmr = 14,
        /// Protection zone handle.
        InvalidHandlePz = 15,
        /// Public service point handle.
        InvalidHandlePsp = 16,
        /// Reserved service point handle.
        InvalidHandleRsp = 17,
        /// Connection request handle.
        InvalidHandleCr = 18,
        /// Consumer notification object handle.
        InvalidHandleCno = 19,
        /// Connection request event dispatcher handle.
        InvalidHandleEvdCr = 20,
        /// Request event dispatcher handle.
        InvalidHandleEvdRequest = 21,
        /// Receive event dispatcher handle.
        InvalidHandleEvdRecv = 22,
        /// Connection event dispatcher handle.
        InvalidHandleEvdConn = 23,
        /// Asynchronous event dispatcher handle.
        InvalidHandleEvdAsync = 24,
        /// Shared receive queue handle.
        InvalidHandleSrq = 25,
        /// Common service point handle; 2.0 only.
        InvalidHandleCsp = 0xF0,
        /// Handle in argument 1.
        InvalidHandle1 = 26,
        /// Handle in argument 2.
        InvalidHandle2 = 27,
        /// Handle in argument 3.
        InvalidHandle3 = 28,
        /// Handle in argument 4.
        InvalidHandle4 = 29,
        /// Handle in argument 5.
        InvalidHandle5 = 30,
        /// Handle in argument 6.
        InvalidHandle6 = 31,
        /// Handle in argument 7.
        InvalidHandle7 = 32,
        /// Handle in argument 8.
        InvalidHandle8 = 33,
        /// Handle in argument 9.
        InvalidHandle9 = 34,
        /// Handle in argument 10.
        InvalidHandle10 = 35,
        /// Argument 1.
        InvalidArg1 = 36,
        /// Argument 2.
        InvalidArg2 = 37,
        /// Argument 3.
        InvalidArg3 = 38,
        /// Argument 4.
        InvalidArg4 = 39,
        /// Argument 5.
        InvalidArg5 = 40,
        /// Argument 6.
        InvalidArg6 = 41,
        /// Argument 7.
        InvalidArg7 = 42,
        /// Argument 8.
        InvalidArg8 = 43,
        /// Argument 9.
        InvalidArg9 = 44,
        /// Argument 10.
        InvalidArg10 = 45,
        /// Endpoint is not connected.
        InvalidStateEpUnconnected = 46,
        /// Endpoint is opening a connection.
        InvalidStateEpActConnPending = 47,
        /// Endpoint holds a request waiting for accept or reject.
        InvalidStateEpPassConnPending = 48,
        /// Endpoint is tentatively bound to a request.
        InvalidStateEpTentConnPending = 49,
        /// Endpoint is connected.
        InvalidStateEpConnected = 50,
        /// Endpoint is disconnected.
        InvalidStateEpDisconnected = 51,
        /// Endpoint is reserved for a service point.
        InvalidStateEpReserved = 52,
        /// Endpoint is completing an accept.
        InvalidStateEpComplPending = 53,
        /// Endpoint is disconnecting.
        InvalidStateEpDiscPending = 54,
        /// Endpoint is under provider control.
        InvalidStateEpProviderControl = 55,
        /// Endpoint is not ready.
        InvalidStateEpNotReady = 56,
        /// Endpoint receive watermarks do not allow it.
        InvalidStateEpRecvWatermark = 57,
        /// Endpoint has no fitting protection zone.
        InvalidStateEpPz = 58,
        /// Endpoint has no fitting request event dispatcher.
        InvalidStateEpEvdRequest = 59,
        /// Endpoint has no fitting receive event dispatcher.
        InvalidStateEpEvdRecv = 60,
        /// Endpoint has no fitting connection event dispatcher.
        InvalidStateEpEvdConnect = 61,
        /// Endpoint is not configured.
        InvalidStateEpUnconfigured = 62,
        /// Endpoint is reserved but not configured.
        InvalidStateEpUnconfReserved = 63,
        /// Endpoint holds a request but is not configured.
        InvalidStateEpUnconfPassive = 64,
        /// Endpoint is tentatively bound but not configured.
        InvalidStateEpUnconfTentative = 65,
        /// Notification object is in use.
        InvalidStateCnoInUse = 66,
        /// Notification object is dead.
        InvalidStateCnoDead = 67,
        /// Event dispatcher is open.
        InvalidStateEvdOpen = 68,
        /// Event dispatcher is enabled.
        InvalidStateEvdEnabled = 69,
        /// Event dispatcher is disabled.
        InvalidStateEvdDisabled = 70,
        /// Event dispatcher is waitable.
        InvalidStateEvdWaitable = 71,
        /// Event dispatcher is not waitable.
        InvalidStateEvdUnwaitable = 72,
        /// Event dispatcher is in use.
        InvalidStateEvdInUse = 73,
        /// Event dispatcher is configured for notification.
        InvalidStateEvdConfigNotify = 74,
        /// Event dispatcher is configured for solicited notification.
        InvalidStateEvdConfigSolicited = 75,
        /// Event dispatcher is configured for a threshold.
        InvalidStateEvdConfigThreshold = 76,
        /// Event dispatcher already has a waiter.
        InvalidStateEvdWaiter = 77,
        /// Event dispatcher takes asynchronous errors.
        InvalidStateEvdAsync = 78,
        /// Interface adapter is in use.
        InvalidStateIaInUse = 79,
        /// Local memory region is in use.
        InvalidStateLmrInUse = 80,
        /// Local memory region is free.
        InvalidStateLmrFree = 81,
        /// Protection zone is in use.
        InvalidStatePzInUse = 82,
        /// Protection zone is free.
        InvalidStatePzFree = 83,
        /// Shared receive queue is operational.
        InvalidStateSrqOperational = 84,
        /// Shared receive queue is in error.
        InvalidStateSrqError = 85,
        /// Shared receive queue is in use.
        InvalidStateSrqInUse = 86,
        /// Shared receive queue is shut down; 2.0 only.
        InvalidStateSrqShutdown = 0xF1,
        /// No privilege for local reads.
        PrivilegesRead = 87,
        /// No privilege for local writes.
        PrivilegesWrite = 88,
        /// No privilege for RDMA Read.
        PrivilegesRdmaRead = 89,
        /// No privilege for RDMA Write.
        PrivilegesRdmaWrite = 90,
        /// Protection zone refuses local reads.
        ProtectionRead = 91,
        /// Protection zone refuses local writes.
        ProtectionWrite = 92,
        /// Protection zone refuses RDMA Read.
        ProtectionRdmaRead = 93,
        /// Protection zone refuses RDMA Write.
        ProtectionRdmaWrite = 94,
        /// Address family not supported.
        InvalidAddressUnsupported = 95,
        /// Address unreachable.
        InvalidAddressUnreachable = 96,
        /// Address malformed.
        InvalidAddressMalformed = 97,
        /// No provider of this name.
        NameNotRegistered = 98,
        /// No provider of this major version.
        MajorNotFound = 99,
        /// No provider of this minor version.
        MinorNotFound = 100,
        /// No provider of this thread safety.
        ThreadSafetyNotFound = 101,
    }
}

impl Subtype {
    /// The number of the subtype in an ABI; 0 where the ABI has no such subtype.
    const fn number(self, abi: Abi) -> u16 {
        let number = self as u16;
        match (abi, self) {
            (Abi::V1_2, Self::InvalidHandleCsp | Self::InvalidStateSrqShutdown) => 0,
            (Abi::V1_2, _) => number,
            (Abi::V2_0, Self::InvalidHandleCsp) => 26,
            (Abi::V2_0, Self::InvalidStateSrqShutdown) => 88,
            (Abi::V2_0, _) if number < Self::InvalidHandle1 as u16 => number,
            (Abi::V2_0, _) if number < Self::PrivilegesRead as u16 => number.wrapping_add(1),
            (Abi::V2_0, _) => number.wrapping_add(2),
        }
    }

    /// The subtype with this number in an ABI.
    const fn from_number(number: u16, abi: Abi) -> Option<Self> {
        if number > Self::ThreadSafetyNotFound.number(abi) {
            return None;
        }
        let number_1_2 = match (abi, number) {
            (Abi::V2_0, 26) => return Some(Self::InvalidHandleCsp),
            (Abi::V2_0, 88) => return Some(Self::InvalidStateSrqShutdown),
            (Abi::V2_0, 27..=87) => number.wrapping_sub(1),
            (Abi::V2_0, 89..) => number.wrapping_sub(2),
            _ => number,
        };
        // At most 101, so the cast loses nothing.
        Self::from_discriminant(number_1_2 as u8)
    }

    /// `INVALID_ARGn` for n = 1 to 10; `NO_SUBTYPE` for any other position.
    pub const fn argument(position: u8) -> Self {
        match position {
            1 => Self::InvalidArg1,
            2 => Self::InvalidArg2,
            3 => Self::InvalidArg3,
            4 => Self::InvalidArg4,
            5 => Self::InvalidArg5,
            6 => Self::InvalidArg6,
            7 => Self::InvalidArg7,
            8 => Self::InvalidArg8,
            9 => Self::InvalidArg9,
            10 => Self::InvalidArg10,
            _ => Self::NoSubtype,
        }
    }
}

numbered! {
    /// Why exactly: finer than DAT can say, for logs and for Rust callers.
    ///
    /// A cause never reaches a return code.
    #[repr(u8)]
    #[non_exhaustive]
    pub enum Cause: u8 {
        /// No finer reason is known.
        None = 0,
        /// The handle is null.
        NullHandle = 1,
        /// The handle names an object of another kind.
        WrongKind = 2,
        /// The handle points outside the table.
        OutOfRange = 3,
        /// The object was destroyed.
        Stale = 4,
        /// The object belongs to another adapter instance.
        Foreign = 5,
        /// A required pointer is null.
        NullPointer = 6,
        /// A count or size is negative.
        NegativeCount = 7,
        /// A count or size is zero where one is needed.
        ZeroCount = 8,
        /// A value is above what the adapter or the object allows.
        AboveLimit = 9,
        /// A value is below what the adapter or the object allows.
        BelowLimit = 10,
        /// More segments than the object was made for.
        TooManySegments = 11,
        /// A flag word has undefined bits.
        UnknownFlags = 12,
        /// A defined flag has no meaning on this call.
        FlagNotAllowed = 13,
        /// Flags or streams that exclude each other.
        FlagCombination = 14,
        /// Unsignalled completions were not configured for this direction.
        UnsignalledNotConfigured = 15,
        /// A field mask has undefined bits.
        UnknownMask = 16,
        /// A masked field can never be modified.
        FieldNotModifiable = 17,
        /// A number names no value of its enumeration.
        UnknownValue = 18,
        /// The timeout is not usable.
        BadTimeout = 19,
        /// A name is empty, too long or not terminated.
        BadName = 20,
        /// The event is not one that can be posted.
        BadEvent = 21,
        /// An address lacks the alignment it needs.
        Misaligned = 22,
        /// The context names no region or window.
        UnknownContext = 23,
        /// The context named a region that is gone.
        StaleContext = 24,
        /// Objects of different protection zones.
        ZoneMismatch = 25,
        /// The endpoint has no protection zone yet.
        ZoneMissing = 26,
        /// The endpoint has no event dispatcher for the stream.
        DispatcherMissing = 27,
        /// The region lacks the privilege.
        MissingPrivilege = 28,
        /// More privileges asked for than the region has.
        PrivilegeExceeded = 29,
        /// A range leaves its region.
        OutsideRegion = 30,
        /// Address plus length is beyond the address space.
        AddressOverflow = 31,
        /// The sum of lengths does not fit.
        LengthOverflow = 32,
        /// The total is above the message or RDMA limit.
        MessageTooLong = 33,
        /// More private data than the provider carries.
        PrivateDataTooLong = 34,
        /// The remote range is shorter than the local one.
        RemoteTooShort = 35,
        /// The local range is shorter than the remote one.
        LocalTooShort = 36,
        /// The remote side is known to refuse the access.
        RemoteRefused = 37,
        /// The endpoint receives from a shared queue.
        SharedReceiveQueue = 38,
        /// The endpoint has no shared receive queue.
        NoSharedReceiveQueue = 39,
        /// The state of the endpoint forbids the call.
        EndpointState = 40,
        /// Another waiter owns the dispatcher.
        WaiterPresent = 41,
        /// A threshold with a stream that notifies selectively.
        ThresholdNotAllowed = 42,
        /// An event stream still feeds the dispatcher.
        StreamFeeding = 43,
        /// Another object still uses this one.
        StillReferenced = 44,
        /// The adapter still holds objects.
        ChildrenLeft = 45,
        /// More is outstanding than the new size.
        BelowOutstanding = 46,
        /// The new size is below the low watermark.
        BelowWatermark = 47,
        /// The memory is not shared as the cookie says.
        SharedMemoryRefused = 48,
        /// The queue has no free slot.
        QueueFull = 49,
        /// No free run of the lent event slots is as long as the dispatcher.
        EventSlotsExhausted = 50,
        /// The table of this object kind is full.
        TableFull = 51,
        /// The lent records, one for each request or receive that may be outstanding, are used up.
        RecordsExhausted = 52,
        /// A slot or context can not be reused any more.
        GenerationExhausted = 53,
        /// Another service point holds the qualifier.
        QualifierTaken = 54,
        /// The provider cannot do this.
        Unsupported = 55,
        /// The device refused the request.
        DeviceRefused = 56,
        /// The device failed or was removed.
        DeviceGone = 57,
        /// The device reported something that was never posted.
        CorruptCompletion = 58,
        /// Another execution context is inside the object.
        Contended = 59,
        /// A signal or interrupt ended the call.
        Interrupted = 60,
        /// The adapter is being closed.
        Closing = 61,
        /// The endpoint has a read depth of 0.
        NoReads = 62,
        /// `max_recv_dtos` of an endpoint is negative, or above the adapter's `max_dto_per_ep`.
        MaxRecvDtos = 63,
        /// `max_request_dtos` of an endpoint is negative, or above the adapter's `max_dto_per_ep`.
        MaxRequestDtos = 64,
        /// `max_recv_iov` of an endpoint is negative, or above the adapter's `max_iov_segments_per_dto`.
        MaxRecvIov = 65,
        /// `max_request_iov` of an endpoint is negative, or above the adapter's `max_iov_segments_per_dto`.
        MaxRequestIov = 66,
        /// `max_rdma_read_in` of an endpoint is negative, or above the adapter's `max_rdma_read_per_ep_in`.
        MaxRdmaReadIn = 67,
        /// `max_rdma_read_out` of an endpoint is negative, or above the adapter's `max_rdma_read_per_ep_out`.
        MaxRdmaReadOut = 68,
        /// `max_rdma_read_iov` of an endpoint is negative, or above the adapter's `max_iov_segments_per_rdma_read`.
        MaxRdmaReadIov = 69,
        /// `max_rdma_write_iov` of an endpoint is negative, or above the adapter's `max_iov_segments_per_rdma_write`.
        MaxRdmaWriteIov = 70,
        /// `max_message_size` of an endpoint is above the adapter's.
        MaxMessageSize = 71,
        /// `max_rdma_size` of an endpoint is above the adapter's.
        MaxRdmaSize = 72,
        /// `srq_soft_hw` of an endpoint is negative, and not `WATERMARK_INFINITE`.
        SrqSoftHw = 73,
        /// `recv_completion_flags` of an endpoint are none that receives may have.
        RecvCompletionFlags = 74,
        /// `request_completion_flags` of an endpoint are none that requests may have.
        RequestCompletionFlags = 75,
    }
}

impl Cause {
    /// The cause with this number, for tracing that stored it as a byte.
    pub const fn from_number(number: u8) -> Option<Self> {
        Self::from_discriminant(number)
    }
}

/// Why a call failed: DAT type, DAT subtype and the cause behind them. Four bytes, also inside `Result<(), Error>`.
///
/// `==` compares the cause too; [`Error::same_code`] compares only what DAT can express.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Error(NonZeroU32);

impl Error {
    /// An error of this type and subtype, with no finer cause.
    pub const fn new(kind: ErrorKind, subtype: Subtype) -> Self {
        Self::packed(kind, subtype, Cause::None)
    }

    /// One number, in one register: what may fail returns it or 0.
    const fn packed(kind: ErrorKind, subtype: Subtype, cause: Cause) -> Self {
        let word = (kind as u32) << KIND_SHIFT | (subtype as u32) << SUBTYPE_SHIFT | cause as u32;
        match NonZeroU32::new(word) {
            Some(word) => Self(word),
            // No kind is 0.
            None => Self(NonZeroU32::MIN),
        }
    }

    /// The same error with its cause set.
    #[must_use]
    pub const fn because(self, cause: Cause) -> Self {
        let word = self.0.get() & !CAUSE_MASK | cause as u32;
        match NonZeroU32::new(word) {
            Some(word) => Self(word),
            // No kind is 0.
            None => self,
        }
    }

    /// The call was abandoned: the object or its adapter went away meanwhile.
    pub const fn abort() -> Self {
        Self::new(ErrorKind::Abort, Subtype::NoSubtype)
    }

    /// A resource limit was reached; `subtype` is one of the `Resource...` ones.
    pub const fn insufficient_resources(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InsufficientResources, subtype)
    }

    /// The provider found a fault of its own. Not for faults of the consumer (`Spec: GEN-02`).
    pub const fn internal(cause: Cause) -> Self {
        Self::new(ErrorKind::InternalError, Subtype::NoSubtype).because(cause)
    }

    /// A handle is bad; `subtype` is one of the `InvalidHandle...` ones and names the object or its role (`Spec: GEN-03`).
    pub const fn invalid_handle(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidHandle, subtype)
    }

    /// The argument at this position is bad (`Spec: GEN-04`). Positions are those of the call in C, which counts the handle that a
    /// method here is called on, and what it returns: `dat_evd_create` has its length at 2.
    ///
    /// A position outside 1 to 10 gives no subtype.
    pub const fn invalid_argument(position: u8) -> Self {
        Self::new(ErrorKind::InvalidParameter, Subtype::argument(position))
    }

    /// The state of an object forbids the call; `subtype` is one of the `InvalidState...` ones.
    pub const fn invalid_state(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidState, subtype)
    }

    /// Source and destination lengths do not fit.
    pub const fn length() -> Self {
        Self::new(ErrorKind::LengthError, Subtype::NoSubtype)
    }

    /// The provider does not support the requested model.
    pub const fn model_not_supported() -> Self {
        Self::new(ErrorKind::ModelNotSupported, Subtype::NoSubtype)
    }

    /// The operation is not there (yet).
    pub const fn not_implemented() -> Self {
        Self::new(ErrorKind::NotImplemented, Subtype::NoSubtype)
    }

    /// A region is unknown or lacks a privilege; `subtype` is one of the `Privileges...` ones.
    pub const fn privileges_violation(subtype: Subtype) -> Self {
        Self::new(ErrorKind::PrivilegesViolation, subtype)
    }

    /// Protection zones differ; `subtype` is one of the `Protection...` ones.
    pub const fn protection_violation(subtype: Subtype) -> Self {
        Self::new(ErrorKind::ProtectionViolation, subtype)
    }

    /// No event is queued.
    pub const fn queue_empty() -> Self {
        Self::new(ErrorKind::QueueEmpty, Subtype::NoSubtype)
    }

    /// The event queue has no room.
    pub const fn queue_full() -> Self {
        Self::new(ErrorKind::QueueFull, Subtype::NoSubtype)
    }

    /// The time ran out.
    pub const fn timeout_expired() -> Self {
        Self::new(ErrorKind::TimeoutExpired, Subtype::NoSubtype)
    }

    /// The DAT return type.
    pub const fn kind(self) -> ErrorKind {
        match ErrorKind::from_discriminant((self.0.get() >> KIND_SHIFT) as u16) {
            Some(kind) => kind,
            // It was made from one.
            None => ErrorKind::InternalError,
        }
    }

    /// The DAT subtype.
    pub const fn subtype(self) -> Subtype {
        match Subtype::from_discriminant((self.0.get() >> SUBTYPE_SHIFT) as u8) {
            Some(subtype) => subtype,
            None => Subtype::NoSubtype,
        }
    }

    /// The cause behind both.
    pub const fn cause(self) -> Cause {
        match Cause::from_discriminant(self.0.get() as u8) {
            Some(cause) => cause,
            None => Cause::None,
        }
    }

    /// Whether type and subtype agree, whatever the causes.
    pub const fn same_code(self, other: Self) -> bool {
        (self.0.get() ^ other.0.get()) >> SUBTYPE_SHIFT == 0
    }

    /// The `DAT_RETURN` of this error in an ABI: error class, type, subtype.
    ///
    /// A subtype that the ABI does not have becomes `NO_SUBTYPE`, a type that it does not have its nearest relative
    /// (`RESERVED_LMR` is `PRIVILEGES_VIOLATION`, `PORT_IN_USE` is `CONN_QUAL_IN_USE`, `COMM_NOT_SUPPORTED` is
    /// `MODEL_NOT_SUPPORTED`). `Spec: GEN-01`
    pub const fn code(self, abi: Abi) -> u32 {
        CLASS_ERROR
            | (self.kind().number(abi) as u32) << TYPE_SHIFT
            | self.subtype().number(abi) as u32
    }

    /// What a `DAT_RETURN` says: success, an error without cause, or `None` for a code the ABI does not define.
    ///
    /// A type without the error class bit is taken as the error it names, because existing providers forget the bit
    /// and the type constants of the headers lack it. Any other class is undefined. `Spec: GEN-01`
    pub const fn from_code(code: u32, abi: Abi) -> Option<Result<()>> {
        if code == 0 {
            return Some(Ok(()));
        }
        let class = code & CLASS_MASK;
        if class != CLASS_ERROR && class != 0 {
            return None;
        }
        // Fourteen and sixteen bits, so the casts lose nothing.
        let kind = ErrorKind::from_number(((code & TYPE_MASK) >> TYPE_SHIFT) as u16, abi);
        let subtype = Subtype::from_number((code & SUBTYPE_MASK) as u16, abi);
        match (kind, subtype) {
            (Some(kind), Some(subtype)) => Some(Err(Self::new(kind, subtype))),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Error")
            .field("kind", &self.kind())
            .field("subtype", &self.subtype())
            .field("cause", &self.cause())
            .finish()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Error {
    fn format(&self, formatter: defmt::Formatter<'_>) {
        defmt::write!(
            formatter,
            "Error {{ kind: {}, subtype: {}, cause: {} }}",
            self.kind(),
            self.subtype(),
            self.cause()
        );
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind().text())?;
        if self.subtype() != Subtype::NoSubtype {
            write!(formatter, ": {}", self.subtype().text())?;
        }
        if self.cause() != Cause::None {
            write!(formatter, " ({})", self.cause().text())?;
        }
        Ok(())
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
