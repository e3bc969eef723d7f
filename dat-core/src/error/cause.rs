//! Causes, finer than DAT can say.

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
