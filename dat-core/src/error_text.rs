//! Texts of return codes, for `dat_strerror` and `Display`.

use crate::error::{Abi, Cause, Error, ErrorKind, Result, Subtype};

/// Returns the texts of the type and the subtype of a `DAT_RETURN`.
///
/// Accepts success. `Spec: STR-01, STR-02, STR-03`
///
/// # Errors
/// `INVALID_PARAMETER` (`INVALID_ARG1`): the ABI does not define the code.
pub fn strerror(code: u32, abi: Abi) -> Result<(&'static str, &'static str)> {
    match Error::from_code(code, abi) {
        Some(Ok(())) => Ok(("success", Subtype::NoSubtype.text())),
        Some(Err(error)) => Ok((error.kind().text(), error.subtype().text())),
        None => Err(Error::invalid_argument(1).because(Cause::UnknownValue)),
    }
}

impl ErrorKind {
    /// Returns the text of this type.
    pub const fn text(self) -> &'static str {
        match self {
            ErrorKind::Abort => "call aborted",
            ErrorKind::ConnQualInUse => "connection qualifier in use",
            ErrorKind::InsufficientResources => "insufficient resources",
            ErrorKind::InternalError => "internal error",
            ErrorKind::InvalidHandle => "invalid handle",
            ErrorKind::InvalidParameter => "invalid parameter",
            ErrorKind::InvalidState => "invalid state",
            ErrorKind::LengthError => "length error",
            ErrorKind::ModelNotSupported => "model not supported",
            ErrorKind::ProviderNotFound => "provider not found",
            ErrorKind::PrivilegesViolation => "privileges violation",
            ErrorKind::ProtectionViolation => "protection violation",
            ErrorKind::QueueEmpty => "queue empty",
            ErrorKind::QueueFull => "queue full",
            ErrorKind::TimeoutExpired => "timeout expired",
            ErrorKind::ProviderAlreadyRegistered => "provider already registered",
            ErrorKind::ProviderInUse => "provider in use",
            ErrorKind::InvalidAddress => "invalid address",
            ErrorKind::InterruptedCall => "interrupted call",
            ErrorKind::ConnQualUnavailable => "connection qualifier unavailable",
            ErrorKind::ReservedLmr => "reserved local memory region",
            ErrorKind::PortInUse => "port in use",
            ErrorKind::CommNotSupported => "communication type not supported",
            ErrorKind::NotImplemented => "not implemented",
        }
    }
}

impl Subtype {
    /// Returns the text of this subtype.
    #[expect(clippy::too_many_lines, reason = "a table of texts")]
    pub const fn text(self) -> &'static str {
        match self {
            Subtype::NoSubtype => "no further detail",
            Subtype::SubInterrupted => "interrupted",
            Subtype::ResourceMemory => "host memory exhausted",
            Subtype::ResourceDevice => "device resources exhausted",
            Subtype::ResourceTep => "transport endpoints, or room for their transfers, exhausted",
            Subtype::ResourceTevd => "event dispatchers, or room for their events, exhausted",
            Subtype::ResourceProtectionDomain => "protection domains exhausted",
            Subtype::ResourceMemoryRegion => "memory regions exhausted",
            Subtype::ResourceErrorHandler => "error handlers exhausted",
            Subtype::ResourceCredits => "credits exhausted",
            Subtype::ResourceSrq => "shared receive queues exhausted",
            Subtype::InvalidHandleIa => "interface adapter handle",
            Subtype::InvalidHandleEp => "endpoint handle",
            Subtype::InvalidHandleLmr => "local memory region handle",
            Subtype::InvalidHandleRmr => "remote memory region handle",
            Subtype::InvalidHandlePz => "protection zone handle",
            Subtype::InvalidHandlePsp => "public service point handle",
            Subtype::InvalidHandleRsp => "reserved service point handle",
            Subtype::InvalidHandleCr => "connection request handle",
            Subtype::InvalidHandleCno => "consumer notification object handle",
            Subtype::InvalidHandleEvdCr => "connection request event dispatcher handle",
            Subtype::InvalidHandleEvdRequest => "request event dispatcher handle",
            Subtype::InvalidHandleEvdRecv => "receive event dispatcher handle",
            Subtype::InvalidHandleEvdConn => "connection event dispatcher handle",
            Subtype::InvalidHandleEvdAsync => "asynchronous event dispatcher handle",
            Subtype::InvalidHandleSrq => "shared receive queue handle",
            Subtype::InvalidHandleCsp => "common service point handle",
            Subtype::InvalidHandle1 => "handle in argument 1",
            Subtype::InvalidHandle2 => "handle in argument 2",
            Subtype::InvalidHandle3 => "handle in argument 3",
            Subtype::InvalidHandle4 => "handle in argument 4",
            Subtype::InvalidHandle5 => "handle in argument 5",
            Subtype::InvalidHandle6 => "handle in argument 6",
            Subtype::InvalidHandle7 => "handle in argument 7",
            Subtype::InvalidHandle8 => "handle in argument 8",
            Subtype::InvalidHandle9 => "handle in argument 9",
            Subtype::InvalidHandle10 => "handle in argument 10",
            Subtype::InvalidArg1 => "argument 1",
            Subtype::InvalidArg2 => "argument 2",
            Subtype::InvalidArg3 => "argument 3",
            Subtype::InvalidArg4 => "argument 4",
            Subtype::InvalidArg5 => "argument 5",
            Subtype::InvalidArg6 => "argument 6",
            Subtype::InvalidArg7 => "argument 7",
            Subtype::InvalidArg8 => "argument 8",
            Subtype::InvalidArg9 => "argument 9",
            Subtype::InvalidArg10 => "argument 10",
            Subtype::InvalidStateEpUnconnected => "endpoint is not connected",
            Subtype::InvalidStateEpActConnPending => "endpoint is opening a connection",
            Subtype::InvalidStateEpPassConnPending => {
                "endpoint holds a request waiting for accept or reject"
            }
            Subtype::InvalidStateEpTentConnPending => "endpoint is tentatively bound to a request",
            Subtype::InvalidStateEpConnected => "endpoint is connected",
            Subtype::InvalidStateEpDisconnected => "endpoint is disconnected",
            Subtype::InvalidStateEpReserved => "endpoint is reserved for a service point",
            Subtype::InvalidStateEpComplPending => "endpoint is completing an accept",
            Subtype::InvalidStateEpDiscPending => "endpoint is disconnecting",
            Subtype::InvalidStateEpProviderControl => "endpoint is under provider control",
            Subtype::InvalidStateEpNotReady => "endpoint is not ready",
            Subtype::InvalidStateEpRecvWatermark => "endpoint receive watermarks do not allow it",
            Subtype::InvalidStateEpPz => "endpoint has no fitting protection zone",
            Subtype::InvalidStateEpEvdRequest => "endpoint has no fitting request event dispatcher",
            Subtype::InvalidStateEpEvdRecv => "endpoint has no fitting receive event dispatcher",
            Subtype::InvalidStateEpEvdConnect => {
                "endpoint has no fitting connection event dispatcher"
            }
            Subtype::InvalidStateEpUnconfigured => "endpoint is not configured",
            Subtype::InvalidStateEpUnconfReserved => "endpoint is reserved but not configured",
            Subtype::InvalidStateEpUnconfPassive => {
                "endpoint holds a request but is not configured"
            }
            Subtype::InvalidStateEpUnconfTentative => {
                "endpoint is tentatively bound but not configured"
            }
            Subtype::InvalidStateCnoInUse => "notification object is in use",
            Subtype::InvalidStateCnoDead => "notification object is dead",
            Subtype::InvalidStateEvdOpen => "event dispatcher is open",
            Subtype::InvalidStateEvdEnabled => "event dispatcher is enabled",
            Subtype::InvalidStateEvdDisabled => "event dispatcher is disabled",
            Subtype::InvalidStateEvdWaitable => "event dispatcher is waitable",
            Subtype::InvalidStateEvdUnwaitable => "event dispatcher is not waitable",
            Subtype::InvalidStateEvdInUse => "event dispatcher is in use",
            Subtype::InvalidStateEvdConfigNotify => {
                "event dispatcher is configured for notification"
            }
            Subtype::InvalidStateEvdConfigSolicited => {
                "event dispatcher is configured for solicited notification"
            }
            Subtype::InvalidStateEvdConfigThreshold => {
                "event dispatcher is configured for a threshold"
            }
            Subtype::InvalidStateEvdWaiter => "event dispatcher already has a waiter",
            Subtype::InvalidStateEvdAsync => "event dispatcher takes asynchronous errors",
            Subtype::InvalidStateIaInUse => "interface adapter is in use",
            Subtype::InvalidStateLmrInUse => "local memory region is in use",
            Subtype::InvalidStateLmrFree => "local memory region is free",
            Subtype::InvalidStatePzInUse => "protection zone is in use",
            Subtype::InvalidStatePzFree => "protection zone is free",
            Subtype::InvalidStateSrqOperational => "shared receive queue is operational",
            Subtype::InvalidStateSrqError => "shared receive queue is in error",
            Subtype::InvalidStateSrqInUse => "shared receive queue is in use",
            Subtype::InvalidStateSrqShutdown => "shared receive queue is shut down",
            Subtype::PrivilegesRead => "no privilege for local reads",
            Subtype::PrivilegesWrite => "no privilege for local writes",
            Subtype::PrivilegesRdmaRead => "no privilege for RDMA Read",
            Subtype::PrivilegesRdmaWrite => "no privilege for RDMA Write",
            Subtype::ProtectionRead => "protection zone refuses local reads",
            Subtype::ProtectionWrite => "protection zone refuses local writes",
            Subtype::ProtectionRdmaRead => "protection zone refuses RDMA Read",
            Subtype::ProtectionRdmaWrite => "protection zone refuses RDMA Write",
            Subtype::InvalidAddressUnsupported => "address family not supported",
            Subtype::InvalidAddressUnreachable => "address unreachable",
            Subtype::InvalidAddressMalformed => "address malformed",
            Subtype::NameNotRegistered => "no provider of this name",
            Subtype::MajorNotFound => "no provider of this major version",
            Subtype::MinorNotFound => "no provider of this minor version",
            Subtype::ThreadSafetyNotFound => "no provider of this thread safety",
        }
    }
}

impl Cause {
    /// Returns the text of this cause.
    #[expect(clippy::too_many_lines, reason = "a table of texts")]
    pub const fn text(self) -> &'static str {
        match self {
            Cause::None => "no further cause",
            Cause::NullHandle => "the handle is null",
            Cause::WrongKind => "the handle names another kind of object",
            Cause::OutOfRange => "a value is outside its range",
            Cause::Stale => "the object was destroyed",
            Cause::Foreign => "the object belongs to another adapter instance",
            Cause::NullPointer => "a required pointer is null",
            Cause::NegativeCount => "a count or size is negative",
            Cause::ZeroCount => "a count or size is zero",
            Cause::AboveLimit => {
                "above its limit: max_evd_qlen, max_recv_per_srq, max_ep_per_srq, max_iov_segments_per_dto, max_lmr_block_size or \
                 max_lmr_virtual_address of the adapter, or the length of the queue"
            }
            Cause::BelowLimit => "a value is below its limit",
            Cause::TooManySegments => "too many segments",
            Cause::UnknownFlags => "undefined flag bits",
            Cause::FlagNotAllowed => "a flag is not allowed here",
            Cause::FlagCombination => "flags exclude each other",
            Cause::UnsignalledNotConfigured => "unsignalled completions are not configured",
            Cause::UnknownMask => "undefined field mask bits",
            Cause::FieldNotModifiable => "a field cannot be modified",
            Cause::UnknownValue => "a number is no value of its enumeration",
            Cause::BadTimeout => "the timeout is not usable",
            Cause::BadName => "a name is empty, too long or not terminated",
            Cause::BadEvent => "the event cannot be posted",
            Cause::Misaligned => "an address is misaligned",
            Cause::UnknownContext => "the context names no region",
            Cause::StaleContext => "the context is of a freed region, or of another adapter",
            Cause::ZoneMismatch => "protection zones differ",
            Cause::ZoneMissing => "no protection zone is set",
            Cause::DispatcherMissing => "no event dispatcher is set",
            Cause::MissingPrivilege => "the region lacks the privilege",
            Cause::PrivilegeExceeded => "more privileges than the region has",
            Cause::OutsideRegion => "a range leaves its region",
            Cause::AddressOverflow => "an address range overflows",
            Cause::LengthOverflow => "the sum of lengths overflows",
            Cause::MessageTooLong => "the message is too long",
            Cause::PrivateDataTooLong => "too much private data",
            Cause::RemoteTooShort => "the remote range is too short",
            Cause::LocalTooShort => "the local range is too short",
            Cause::RemoteRefused => "the remote side refuses the access",
            Cause::SharedReceiveQueue => "the endpoint receives from a shared queue",
            Cause::NoSharedReceiveQueue => "the endpoint has no shared receive queue",
            Cause::EndpointState => "the endpoint state forbids it",
            Cause::WaiterPresent => "another waiter is present",
            Cause::ThresholdNotAllowed => "a threshold is not allowed here",
            Cause::StreamFeeding => "an event stream still feeds it",
            Cause::StillReferenced => "another object still uses it",
            Cause::ChildrenLeft => "objects are left in the adapter",
            Cause::BelowOutstanding => "more is outstanding than the new size",
            Cause::BelowWatermark => "the new size is below the watermark",
            Cause::SharedMemoryRefused => "the memory is not shared as the cookie claims",
            Cause::QueueFull => {
                "the queue is full: its size is max_recv_dtos for receives, max_request_dtos for requests, the queue length for events"
            }
            Cause::BindsOutstanding => {
                "binds of the window are outstanding on another endpoint, or too many: wait for their completions"
            }
            Cause::EventSlotsExhausted => {
                "too few lent event slots are free: make the queue shorter, free a dispatcher, or open the adapter with more"
            }
            Cause::TableFull => {
                "the object table is full: free an object of this kind, or open the adapter with more"
            }
            Cause::RecordsExhausted => {
                "too few lent records are free for what may be outstanding: make the queues shorter, or open the adapter with more"
            }
            Cause::GenerationExhausted => "generations are used up",
            Cause::QualifierTaken => "another service point holds the qualifier",
            Cause::Unsupported => "the provider cannot do this",
            Cause::DeviceRefused => "the device refused",
            Cause::NoRoute => {
                "the adapter has no route to the address; at a loop-back address it reaches only this host, and by the path `local` only processes of its user there"
            }
            Cause::NoDescriptor => {
                "the process or the host has no file descriptor left: raise the limit of open files"
            }
            Cause::Prohibited => "the system does not permit it, by its permissions or by a filter",
            Cause::AddressKind => {
                "the adapter cannot use an address of this family or kind, such as one of many hosts"
            }
            Cause::Busy => "another context is in a control call, or changes the object",
            Cause::DeviceGone => "the device is gone",
            Cause::CorruptCompletion => "an impossible completion, or an inconsistent table",
            Cause::Contended => "the object changed while the call checked it",
            Cause::Interrupted => "interrupted",
            Cause::Closing => "the adapter is closing",
            Cause::NoReads => {
                "the endpoint reads nothing: give it a max_rdma_read_out above 0, and its peer a max_rdma_read_in"
            }
            Cause::MaxRecvDtos => {
                "max_recv_dtos is negative, or above the adapter's max_dto_per_ep"
            }
            Cause::MaxRequestDtos => {
                "max_request_dtos is negative, or above the adapter's max_dto_per_ep"
            }
            Cause::MaxRecvIov => {
                "max_recv_iov is negative, or above the adapter's max_iov_segments_per_dto"
            }
            Cause::MaxRequestIov => {
                "max_request_iov is negative, or above the adapter's max_iov_segments_per_dto"
            }
            Cause::MaxRdmaReadIn => {
                "max_rdma_read_in is negative, or above the adapter's max_rdma_read_per_ep_in"
            }
            Cause::MaxRdmaReadOut => {
                "max_rdma_read_out is negative, or above the adapter's max_rdma_read_per_ep_out"
            }
            Cause::MaxRdmaReadIov => {
                "max_rdma_read_iov is negative, or above the adapter's max_iov_segments_per_rdma_read"
            }
            Cause::MaxRdmaWriteIov => {
                "max_rdma_write_iov is negative, or above the adapter's max_iov_segments_per_rdma_write"
            }
            Cause::MaxMessageSize => "max_message_size is above the adapter's",
            Cause::MaxRdmaSize => "max_rdma_size is above the adapter's",
            Cause::SrqSoftHw => "srq_soft_hw is below 0, and not -1 (infinite: off)",
            Cause::RecvCompletionFlags => {
                "recv_completion_flags may be none, unsignalled, threshold or solicited wait, one of them"
            }
            Cause::RequestCompletionFlags => {
                "request_completion_flags may be none, unsignalled or threshold, one of them"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::error::Parameter;
    use std::collections::BTreeSet;
    use std::format;

    const ABIS: [Abi; 2] = [Abi::V1_2, Abi::V2_0];

    fn defined(abi: Abi) -> impl Iterator<Item = Error> {
        ErrorKind::ALL
            .iter()
            .flat_map(|&kind| {
                Subtype::ALL
                    .iter()
                    .map(move |&subtype| Error::new(kind, subtype))
            })
            .filter(move |&error| Error::from_code(error.code(abi), abi) == Some(Err(error)))
    }

    /// Spec: STR-01, STR-03
    #[test]
    fn every_defined_code_has_a_text_of_its_own() {
        for (abi, kinds, subtypes) in [(Abi::V1_2, 21, 102), (Abi::V2_0, 24, 104)] {
            let mut pairs = BTreeSet::new();
            let mut majors = BTreeSet::from(["success"]);
            let mut minors = BTreeSet::new();
            for error in defined(abi) {
                let text = strerror(error.code(abi), abi);
                assert_eq!(text, Ok((error.kind().text(), error.subtype().text())));
                if let Ok((major, minor)) = text {
                    assert!(!major.is_empty() && !minor.is_empty());
                    assert!(pairs.insert((major, minor)), "{major}: {minor} twice");
                    majors.insert(major);
                    minors.insert(minor);
                }
            }
            assert_eq!(
                (majors.len(), minors.len(), pairs.len()),
                (kinds + 1, subtypes, kinds * subtypes)
            );
        }
    }

    /// Spec: STR-02
    #[test]
    fn success_is_accepted() {
        for abi in ABIS {
            assert_eq!(strerror(0, abi), Ok(("success", "no further detail")));
        }
    }

    /// Spec: STR-02
    #[test]
    fn an_undefined_code_is_an_invalid_parameter() {
        for abi in ABIS {
            for code in [
                1,
                0x8000_0000,
                0x8005_0068,
                0x8018_0000,
                0x4006_0000,
                u32::MAX,
            ] {
                let refused = strerror(code, abi).map_err(|error| error.code(Abi::V1_2));
                assert_eq!(refused, Err(0x8006_0024), "{code:#010x} {abi:?}");
            }
        }
    }

    /// Spec: STR-03
    #[test]
    fn the_codes_others_forget_have_texts() {
        assert_eq!(
            strerror(0x8014_0000, Abi::V1_2),
            Ok(("connection qualifier unavailable", "no further detail"))
        );
        for (code, text) in [
            (0x8007_0055, "shared receive queue is operational"),
            (0x8007_0056, "shared receive queue is in error"),
            (0x8007_0057, "shared receive queue is in use"),
            (0x8007_0058, "shared receive queue is shut down"),
        ] {
            assert_eq!(strerror(code, Abi::V2_0), Ok(("invalid state", text)));
        }
    }

    #[test]
    fn causes_have_texts_of_their_own() {
        let texts: BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.text()).collect();
        assert_eq!(texts.len(), Cause::ALL.len());
        assert!(!texts.contains(""));
    }

    #[test]
    fn a_refused_attribute_is_named_with_what_it_is_held_against() {
        for (cause, attribute, limit) in [
            (Cause::MaxRecvDtos, "max_recv_dtos", "max_dto_per_ep"),
            (Cause::MaxRequestDtos, "max_request_dtos", "max_dto_per_ep"),
            (
                Cause::MaxRecvIov,
                "max_recv_iov",
                "max_iov_segments_per_dto",
            ),
            (
                Cause::MaxRequestIov,
                "max_request_iov",
                "max_iov_segments_per_dto",
            ),
            (
                Cause::MaxRdmaReadIn,
                "max_rdma_read_in",
                "max_rdma_read_per_ep_in",
            ),
            (
                Cause::MaxRdmaReadOut,
                "max_rdma_read_out",
                "max_rdma_read_per_ep_out",
            ),
            (
                Cause::MaxRdmaReadIov,
                "max_rdma_read_iov",
                "max_iov_segments_per_rdma_read",
            ),
            (
                Cause::MaxRdmaWriteIov,
                "max_rdma_write_iov",
                "max_iov_segments_per_rdma_write",
            ),
            (Cause::MaxMessageSize, "max_message_size", "the adapter's"),
            (Cause::MaxRdmaSize, "max_rdma_size", "the adapter's"),
            (Cause::SrqSoftHw, "srq_soft_hw", "-1 (infinite: off)"),
            (
                Cause::RecvCompletionFlags,
                "recv_completion_flags",
                "solicited wait, one of them",
            ),
            (
                Cause::RequestCompletionFlags,
                "request_completion_flags",
                "threshold, one of them",
            ),
        ] {
            let mut words = cause.text().split(' ');
            assert_eq!(words.next(), Some(attribute));
            assert!(cause.text().ends_with(limit), "{attribute}");
        }
    }

    /// A full queue and an exceeded limit are reported with the attributes that set the limit.
    #[test]
    fn a_limit_is_named() {
        for attribute in ["max_recv_dtos", "max_request_dtos"] {
            assert!(Cause::QueueFull.text().contains(attribute));
        }
        for attribute in ["max_evd_qlen", "max_recv_per_srq", "max_lmr_block_size"] {
            assert!(Cause::AboveLimit.text().contains(attribute));
        }
    }

    /// A limit of the lent storage is reported with the remedy.
    #[test]
    fn a_limit_that_is_reached_says_what_to_do() {
        let error = Error::insufficient_resources(Subtype::ResourceTevd);
        assert_eq!(
            format!("{}", error.because(Cause::EventSlotsExhausted)),
            "insufficient resources: event dispatchers, or room for their events, exhausted (too few lent event slots are free: make \
             the queue shorter, free a dispatcher, or open the adapter with more)"
        );
        for cause in [Cause::TableFull, Cause::RecordsExhausted] {
            assert!(cause.text().ends_with("or open the adapter with more"));
        }
    }

    #[test]
    fn an_error_reads_from_the_general_to_the_particular() {
        let error = Error::invalid_argument(3);
        assert_eq!(format!("{error}"), "invalid parameter: argument 3");
        assert_eq!(
            format!("{}", error.because(Cause::TooManySegments)),
            "invalid parameter: argument 3 (too many segments)"
        );
        assert_eq!(
            format!(
                "{}",
                error
                    .about(Parameter::Segments)
                    .because(Cause::TooManySegments)
            ),
            "invalid parameter `segments` (too many segments)"
        );
        assert_eq!(format!("{}", Error::queue_empty()), "queue empty");
        assert_eq!(
            format!("{}", Error::internal(Cause::DeviceGone)),
            "internal error (the device is gone)"
        );
    }
}
