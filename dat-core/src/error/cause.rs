//! Causes of errors, finer than DAT subtypes.

numbered! {
    /// Cause of an error, finer than a DAT subtype, for logs and for Rust callers.
    ///
    /// A return code never carries a cause.
    #[repr(u8)]
    #[non_exhaustive]
    pub enum Cause: u8 {
        /// No finer reason is known.
        None = 0,
        /// The handle is null.
        NullHandle = 1,
        /// The handle names an object of another kind.
        WrongKind = 2,
        /// The value is outside its range: a connection qualifier that the transport cannot
        /// express.
        OutOfRange = 3,
        /// The object was destroyed.
        Stale = 4,
        /// The object belongs to another adapter instance.
        Foreign = 5,
        /// A required pointer is null.
        NullPointer = 6,
        /// A count or size is negative.
        NegativeCount = 7,
        /// A count or size is zero where one above zero is needed.
        ZeroCount = 8,
        /// A value exceeds the limit of the adapter or the object.
        AboveLimit = 9,
        /// A value is below the limit of the adapter or the object.
        BelowLimit = 10,
        /// The post has more segments than the object allows.
        TooManySegments = 11,
        /// A flag word has undefined bits.
        UnknownFlags = 12,
        /// A defined flag is not allowed here, or the dispatcher lacks the stream.
        FlagNotAllowed = 13,
        /// Flags, streams or arguments exclude each other.
        FlagCombination = 14,
        /// Unsignalled completions were not configured for this direction.
        UnsignalledNotConfigured = 15,
        /// A field mask has undefined bits.
        UnknownMask = 16,
        /// A masked field can never be modified.
        FieldNotModifiable = 17,
        /// A number names no value of its enumeration.
        UnknownValue = 18,
        /// The timeout is 0, which is not usable.
        BadTimeout = 19,
        /// A name is empty, too long or not terminated.
        BadName = 20,
        /// The event is not one that a consumer can post.
        BadEvent = 21,
        /// An address lacks the alignment it needs.
        Misaligned = 22,
        /// The context names no region or window.
        UnknownContext = 23,
        /// The context is of a freed region, or of another adapter.
        StaleContext = 24,
        /// The objects are of different protection zones.
        ZoneMismatch = 25,
        /// The endpoint has no protection zone yet.
        ZoneMissing = 26,
        /// The endpoint has no event dispatcher for the stream.
        DispatcherMissing = 27,
        /// The region lacks the privilege.
        MissingPrivilege = 28,
        /// A call requests more privileges than the region has.
        PrivilegeExceeded = 29,
        /// A range leaves its region.
        OutsideRegion = 30,
        /// Address plus length exceeds the address space.
        AddressOverflow = 31,
        /// The sum of lengths overflows.
        LengthOverflow = 32,
        /// The total length exceeds the message or RDMA limit.
        MessageTooLong = 33,
        /// The private data exceeds the provider's limit.
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
        /// Another waiter uses the dispatcher or the notification object.
        WaiterPresent = 41,
        /// A threshold is not allowed with a stream that notifies selectively.
        ThresholdNotAllowed = 42,
        /// An event stream still feeds the dispatcher.
        StreamFeeding = 43,
        /// Another object still uses this one.
        StillReferenced = 44,
        /// The adapter still holds objects.
        ChildrenLeft = 45,
        /// More requests or buffers are outstanding than the new size allows.
        BelowOutstanding = 46,
        /// The new size is below the low watermark.
        BelowWatermark = 47,
        /// The memory is not shared as the cookie claims.
        SharedMemoryRefused = 48,
        /// The queue has no free slot.
        QueueFull = 49,
        /// No free run of the lent event slots is as long as the dispatcher.
        EventSlotsExhausted = 50,
        /// The table of this object kind is full.
        TableFull = 51,
        /// The lent records are used up, one for each request or receive outstanding.
        RecordsExhausted = 52,
        /// A slot or context has used all its generations.
        GenerationExhausted = 53,
        /// Another service point holds the qualifier.
        QualifierTaken = 54,
        /// The provider does not support this.
        Unsupported = 55,
        /// The device refused the request.
        DeviceRefused = 56,
        /// The device failed or was removed.
        DeviceGone = 57,
        /// The device reported an impossible completion, or a table is inconsistent.
        CorruptCompletion = 58,
        /// Another execution context changed an object while the call checked it.
        Contended = 59,
        /// A signal or interrupt ended the call.
        Interrupted = 60,
        /// The adapter is being closed.
        Closing = 61,
        /// The endpoint has an outgoing RDMA Read depth of 0.
        NoReads = 62,
        /// `max_recv_dtos` of an endpoint is negative, or above the adapter's `max_dto_per_ep`.
        MaxRecvDtos = 63,
        /// `max_request_dtos` of an endpoint is negative, or above the adapter's `max_dto_per_ep`.
        MaxRequestDtos = 64,
        /// `max_recv_iov` of an endpoint is negative, or above the adapter's
        /// `max_iov_segments_per_dto`.
        MaxRecvIov = 65,
        /// `max_request_iov` of an endpoint is negative, or above the adapter's
        /// `max_iov_segments_per_dto`.
        MaxRequestIov = 66,
        /// `max_rdma_read_in` of an endpoint is negative, or above the adapter's
        /// `max_rdma_read_per_ep_in`.
        MaxRdmaReadIn = 67,
        /// `max_rdma_read_out` of an endpoint is negative, or above the adapter's
        /// `max_rdma_read_per_ep_out`.
        MaxRdmaReadOut = 68,
        /// `max_rdma_read_iov` of an endpoint is negative, or above the adapter's
        /// `max_iov_segments_per_rdma_read`.
        MaxRdmaReadIov = 69,
        /// `max_rdma_write_iov` of an endpoint is negative, or above the adapter's
        /// `max_iov_segments_per_rdma_write`.
        MaxRdmaWriteIov = 70,
        /// `max_message_size` of an endpoint is above the adapter's.
        MaxMessageSize = 71,
        /// `max_rdma_size` of an endpoint is above the adapter's.
        MaxRdmaSize = 72,
        /// `srq_soft_hw` of an endpoint is negative, and not `WATERMARK_INFINITE`.
        SrqSoftHw = 73,
        /// `recv_completion_flags` of an endpoint are not allowed for receives.
        RecvCompletionFlags = 74,
        /// `request_completion_flags` of an endpoint are not allowed for requests.
        RequestCompletionFlags = 75,
        /// Binds of the window are outstanding on another endpoint, or as many as it can have.
        BindsOutstanding = 76,
        /// The device has no route to the address.
        NoRoute = 77,
        /// The process, or the host, has no file descriptor left.
        NoDescriptor = 78,
        /// The system does not permit the call, by its permissions or by a filter.
        Prohibited = 79,
        /// The device cannot use addresses of this family or kind.
        AddressKind = 80,
        /// Another context is in a control call, or changes the object; only with a `SplitLock`.
        Busy = 81,
    }
}

impl Cause {
    /// Returns the cause with this number, for traces that store it as a byte.
    pub const fn from_number(number: u8) -> Option<Self> {
        Self::from_discriminant(number)
    }
}
