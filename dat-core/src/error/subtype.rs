//! DAT subtypes.

use super::Abi;

numbered! {
    /// DAT subtypes of 1.2 and 2.0: object, argument, state or resource of an error.
    ///
    /// The discriminant is the 1.2 value. The two subtypes that only 2.0 has lie above the 1.2
    /// range.
    ///
    /// `InvalidArg1` to `InvalidArg10` count the arguments of the C call, also where the
    /// documentation of a Rust call names `ARGn`: its adapter handle and its pointers to results
    /// count, too.
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
        /// Transport endpoints, or room for their transfers, exhausted.
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
        /// No provider has this name.
        NameNotRegistered = 98,
        /// No provider has this major version.
        MajorNotFound = 99,
        /// No provider has this minor version.
        MinorNotFound = 100,
        /// No provider has this thread safety.
        ThreadSafetyNotFound = 101,
    }
}

impl Subtype {
    /// Returns the number of the subtype in an ABI; 0 if the ABI lacks it.
    pub(super) const fn number(self, abi: Abi) -> u16 {
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

    /// Returns the subtype with this number in an ABI.
    pub(super) const fn from_number(number: u16, abi: Abi) -> Option<Self> {
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

    /// Returns `INVALID_ARGn` for n = 1 to 10; `NO_SUBTYPE` for any other position.
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
