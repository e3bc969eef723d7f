//! C names of the core's return codes and constants.

use std::fmt::Debug;

use dat_core::{Error, Subtype};
use dat_rsm::RsmError;

/// Converts a Rust name to that of the C constant: `InvalidArg3` becomes `INVALID_ARG3`.
pub(crate) fn constant(value: impl Debug) -> String {
    let mut name = String::new();
    let mut previous_is_small = false;
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && previous_is_small {
            name.push('_');
        }
        previous_is_small = !letter.is_ascii_uppercase();
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Returns the C spelling of a call's return code.
pub(crate) fn return_code(result: dat_core::Result<()>) -> String {
    match result {
        Ok(()) => "DAT_SUCCESS".into(),
        Err(error) => error_code(error),
    }
}

fn error_code(error: Error) -> String {
    let kind = constant(error.kind());
    match error.subtype() {
        Subtype::NoSubtype => format!("DAT_{kind}"),
        subtype => format!("DAT_{kind} (DAT_{})", constant(subtype)),
    }
}

/// Returns the C spelling of the return code of a call of remote shared memory.
pub(crate) fn rsm_return_code(result: dat_rsm::Result<()>) -> &'static str {
    match result {
        Ok(()) => "RSM_SUCCESS",
        Err(error) => rsm_error(error),
    }
}

const fn rsm_error(error: RsmError) -> &'static str {
    match error {
        RsmError::BadLibraryVersion => "RSMERR_BAD_LIBRARY_VERSION",
        RsmError::BadTopologyPointer => "RSMERR_BAD_TOPOLOGY_PTR",
        RsmError::BadControllerHandle => "RSMERR_BAD_CTLR_HNDL",
        RsmError::ControllerNotPresent => "RSMERR_CTLR_NOT_PRESENT",
        RsmError::BadSegmentHandle => "RSMERR_BAD_SEG_HNDL",
        RsmError::SegmentAlreadyPublished => "RSMERR_SEG_ALREADY_PUBLISHED",
        RsmError::SegmentNotPublished => "RSMERR_SEG_NOT_PUBLISHED",
        RsmError::SegmentNotPublishedToNode => "RSMERR_SEG_NOT_PUBLISHED_TO_NODE",
        RsmError::SegmentAlreadyMapped => "RSMERR_SEG_ALREADY_MAPPED",
        RsmError::SegmentStillMapped => "RSMERR_SEG_STILL_MAPPED",
        RsmError::SegmentNotMapped => "RSMERR_SEG_NOT_MAPPED",
        RsmError::NotCreator => "RSMERR_NOT_CREATOR",
        RsmError::BadBarrierPointer => "RSMERR_BAD_BARRIER_PTR",
        RsmError::BadScatterGather => "RSMERR_BAD_SGIO",
        RsmError::BadLocalMemoryHandle => "RSMERR_BAD_LOCALMEM_HNDL",
        RsmError::BadAddress => "RSMERR_BAD_ADDR",
        RsmError::BadMemoryAlignment => "RSMERR_BAD_MEM_ALIGNMENT",
        RsmError::BadOffset => "RSMERR_BAD_OFFSET",
        RsmError::MisalignedOffset => "RSMERR_MISALIGNED_OFFSET",
        RsmError::BadLength => "RSMERR_BAD_LENGTH",
        RsmError::BadAccessList => "RSMERR_BAD_ACL",
        RsmError::BadSegmentId => "RSMERR_BAD_SEGID",
        RsmError::ReservedSegmentId => "RSMERR_RESERVED_SEGID",
        RsmError::SegmentIdInUse => "RSMERR_SEGID_IN_USE",
        RsmError::BadMode => "RSMERR_BAD_MODE",
        RsmError::BadPermissions => "RSMERR_BAD_PERMS",
        RsmError::PermissionDenied => "RSMERR_PERM_DENIED",
        RsmError::LocksNotSupported => "RSMERR_LOCKS_NOT_SUPPORTED",
        RsmError::LocksNotEnabled => "RSMERR_LOCKS_NOT_ENABLED",
        RsmError::RebindNotAllowed => "RSMERR_REBIND_NOT_ALLOWED",
        RsmError::InsufficientResources => "RSMERR_INSUFFICIENT_RESOURCES",
        RsmError::InsufficientMemory => "RSMERR_INSUFFICIENT_MEM",
        RsmError::MapFailed => "RSMERR_MAP_FAILED",
        RsmError::PollDescriptorInUse => "RSMERR_POLLFD_IN_USE",
        RsmError::BarrierUninitialized => "RSMERR_BARRIER_UNINITIALIZED",
        RsmError::BarrierOpenFailed => "RSMERR_BARRIER_OPEN_FAILED",
        RsmError::BarrierNotOpened => "RSMERR_BARRIER_NOT_OPENED",
        RsmError::BarrierFailure => "RSMERR_BARRIER_FAILURE",
        RsmError::RemoteNodeUnreachable => "RSMERR_REMOTE_NODE_UNREACHABLE",
        RsmError::ConnectionAborted => "RSMERR_CONN_ABORTED",
        RsmError::Interrupted => "RSMERR_INTERRUPTED",
        RsmError::TimedOut => "RSMERR_TIMEOUT",
        RsmError::BadApplicationId => "RSMERR_BAD_APPID",
        RsmError::BadConfiguration => "RSMERR_BAD_CONF",
        RsmError::SegmentNotConnected => "RSMERR_SEG_NOT_CONNECTED",
        RsmError::BadArguments => "RSMERR_BAD_ARGS_ERRORS",
        // Later variants of this non-exhaustive enum have no name here yet.
        _ => "RSMERR_INTERNAL_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::ErrorKind;

    #[test]
    fn codes_are_spelled_as_in_c() {
        assert_eq!(return_code(Ok(())), "DAT_SUCCESS");
        assert_eq!(return_code(Err(Error::length())), "DAT_LENGTH_ERROR");
        let error = Error::new(ErrorKind::InvalidParameter, Subtype::InvalidArg3);
        assert_eq!(
            return_code(Err(error)),
            "DAT_INVALID_PARAMETER (DAT_INVALID_ARG3)"
        );
        let error = Error::invalid_state(Subtype::InvalidStateEpUnconnected);
        assert_eq!(
            return_code(Err(error)),
            "DAT_INVALID_STATE (DAT_INVALID_STATE_EP_UNCONNECTED)"
        );
    }

    /// Spec: RSMGEN-01
    #[test]
    fn codes_of_remote_shared_memory_are_those_of_the_catalogue() {
        let catalogue = include_str!("../../docs/spec/rsm-abi.md");
        for error in RsmError::ALL {
            let name = rsm_return_code(Err(*error)).strip_prefix("RSMERR_");
            let row = format!("| {} | {} |", error.code(), name.unwrap());
            assert!(catalogue.contains(&row), "no {row}");
        }
        assert_eq!(rsm_return_code(Ok(())), "RSM_SUCCESS");
    }
}
