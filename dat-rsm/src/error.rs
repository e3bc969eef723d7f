//! Errors of the interface, with their numbers.

use core::fmt;

use dat_core::flags::DtoStatus;
use dat_core::{Error, ErrorKind};

/// Result of a call of this crate.
pub type Result<T> = core::result::Result<T, RsmError>;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $constant:literal, $text:literal;)*) => {
        /// Reason for a failed call; the value is the number of the C constant (`Spec: RSMGEN-01`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum RsmError {
            $($(#[$doc])* $name = $value,)*
        }

        impl RsmError {
            /// All errors, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the error with this number.
            pub const fn from_code(code: i32) -> Option<Self> {
                match code {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the name of the C constant.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $constant,)*
                }
            }

            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

errors! {
    /// The backend has another version of the interface.
    BadLibraryVersion = 1, "RSMERR_BAD_LIBRARY_VERSION",
        "the backend has another interface version";
    /// A pointer for a topology is missing.
    BadTopologyPointer = 2, "RSMERR_BAD_TOPOLOGY_PTR", "bad topology pointer";
    /// The handle names no open controller.
    BadControllerHandle = 3, "RSMERR_BAD_CTLR_HNDL", "bad controller handle";
    /// No controller has this name.
    ControllerNotPresent = 4, "RSMERR_CTLR_NOT_PRESENT", "the controller is not present";
    /// The handle names no segment of the kind that the call takes.
    BadSegmentHandle = 5, "RSMERR_BAD_SEG_HNDL", "bad segment handle";
    /// The segment is already published.
    SegmentAlreadyPublished = 6, "RSMERR_SEG_ALREADY_PUBLISHED", "the segment is already published";
    /// The segment, or the id, is not published.
    SegmentNotPublished = 7, "RSMERR_SEG_NOT_PUBLISHED", "the segment is not published";
    /// The segment is published, but not for this node.
    SegmentNotPublishedToNode = 8, "RSMERR_SEG_NOT_PUBLISHED_TO_NODE",
        "the segment is not published to this node";
    /// The segment is already mapped.
    SegmentAlreadyMapped = 9, "RSMERR_SEG_ALREADY_MAPPED", "the segment is already mapped";
    /// The segment is still mapped.
    SegmentStillMapped = 10, "RSMERR_SEG_STILL_MAPPED", "the segment is still mapped";
    /// The segment is not mapped.
    SegmentNotMapped = 11, "RSMERR_SEG_NOT_MAPPED", "the segment is not mapped";
    /// The segment belongs to another process.
    NotCreator = 12, "RSMERR_NOT_CREATOR", "not the creator of the segment";
    /// A barrier pointer is missing.
    BadBarrierPointer = 13, "RSMERR_BAD_BARRIER_PTR", "bad barrier pointer";
    /// The scatter-gather structure is invalid.
    BadScatterGather = 14, "RSMERR_BAD_SGIO", "invalid scatter-gather structure";
    /// The handle names no local memory of the controller.
    BadLocalMemoryHandle = 15, "RSMERR_BAD_LOCALMEM_HNDL", "bad local memory handle";
    /// An address is invalid, or the memory there lacks a right.
    BadAddress = 16, "RSMERR_BAD_ADDR", "bad address";
    /// An address, length or offset is not aligned.
    BadMemoryAlignment = 17, "RSMERR_BAD_MEM_ALIGNMENT",
        "an address, a length or an offset is not aligned";
    /// An offset is out of range.
    BadOffset = 18, "RSMERR_BAD_OFFSET", "offset out of range";
    /// An offset is not a multiple of the item size; reserved, never returned.
    MisalignedOffset = 19, "RSMERR_MISALIGNED_OFFSET", "misaligned offset";
    /// A length is zero or out of range.
    BadLength = 20, "RSMERR_BAD_LENGTH", "length out of range";
    /// The access list is invalid.
    BadAccessList = 21, "RSMERR_BAD_ACL",
        "the access list has an unknown node, bad permissions or too many entries";
    /// A pointer for a segment id is missing.
    BadSegmentId = 22, "RSMERR_BAD_SEGID", "bad segment id";
    /// Applications may not use the segment id.
    ReservedSegmentId = 23, "RSMERR_RESERVED_SEGID", "reserved segment id";
    /// The segment id is in use.
    SegmentIdInUse = 24, "RSMERR_SEGID_IN_USE", "the segment id is in use";
    /// No barrier mode has this number.
    BadMode = 25, "RSMERR_BAD_MODE", "bad barrier mode";
    /// The permissions are empty or exceed those of the connection.
    BadPermissions = 26, "RSMERR_BAD_PERMS", "bad permissions";
    /// A right is missing.
    PermissionDenied = 27, "RSMERR_PERM_DENIED", "permission denied";
    /// The segment was made for locks, which are not supported.
    LocksNotSupported = 28, "RSMERR_LOCKS_NOT_SUPPORTED", "locks are not supported";
    /// The segment has no locks; reserved, never returned.
    LocksNotEnabled = 29, "RSMERR_LOCKS_NOT_ENABLED", "locks are not enabled";
    /// The segment was made without the right to rebind it.
    RebindNotAllowed = 30, "RSMERR_REBIND_NOT_ALLOWED", "rebind not allowed";
    /// Tables, queues or device objects are exhausted.
    InsufficientResources = 31, "RSMERR_INSUFFICIENT_RESOURCES", "insufficient resources";
    /// Memory is exhausted.
    InsufficientMemory = 32, "RSMERR_INSUFFICIENT_MEM", "insufficient memory";
    /// The segment cannot be mapped.
    MapFailed = 33, "RSMERR_MAP_FAILED", "the segment cannot be mapped";
    /// A caller polls the segment.
    PollDescriptorInUse = 34, "RSMERR_POLLFD_IN_USE", "poll references are outstanding";
    /// The barrier is not initialised, or destroyed.
    BarrierUninitialized = 35, "RSMERR_BARRIER_UNINITIALIZED", "the barrier is not initialised";
    /// The barrier cannot be opened.
    BarrierOpenFailed = 36, "RSMERR_BARRIER_OPEN_FAILED", "the barrier could not be opened";
    /// The barrier is not open.
    BarrierNotOpened = 37, "RSMERR_BARRIER_NOT_OPENED", "the barrier is not open";
    /// A transfer failed.
    BarrierFailure = 38, "RSMERR_BARRIER_FAILURE", "a transfer failed";
    /// The node cannot be reached.
    RemoteNodeUnreachable = 39, "RSMERR_REMOTE_NODE_UNREACHABLE", "the remote node is unreachable";
    /// The exporter took the segment back, ended, or became unreachable.
    ConnectionAborted = 40, "RSMERR_CONN_ABORTED", "the connection was aborted";
    /// A signal interrupted the wait.
    Interrupted = 41, "RSMERR_INTERRUPTED", "interrupted";
    /// The deadline has passed.
    TimedOut = 42, "RSMERR_TIMEOUT", "timed out";
    /// The application is not listed in the file of segment ids.
    BadApplicationId = 43, "RSMERR_BAD_APPID", "the application is not listed";
    /// The file of segment ids is missing or malformed.
    BadConfiguration = 44, "RSMERR_BAD_CONF", "bad configuration file";
    /// The segment is not connected; reserved, never returned.
    SegmentNotConnected = 45, "RSMERR_SEG_NOT_CONNECTED", "the segment is not connected";
    /// Any failure without a code of its own (`Spec: RSMGEN-07`).
    InternalError = 100, "RSMERR_INTERNAL_ERROR", "internal error";
    /// A count is out of range.
    BadArguments = 117, "RSMERR_BAD_ARGS_ERRORS", "bad arguments";
}

impl RsmError {
    /// Returns the number of the C constant.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for RsmError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl core::error::Error for RsmError {}

/// Converts the error of a control call of the transport.
///
/// A kind without a counterpart becomes [`RsmError::InternalError`].
impl From<Error> for RsmError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::InsufficientResources
            | ErrorKind::QueueFull
            | ErrorKind::ConnQualInUse
            | ErrorKind::ConnQualUnavailable => Self::InsufficientResources,
            ErrorKind::PrivilegesViolation | ErrorKind::ProtectionViolation => Self::BadAddress,
            ErrorKind::LengthError => Self::BadLength,
            ErrorKind::TimeoutExpired => Self::TimedOut,
            ErrorKind::InterruptedCall => Self::Interrupted,
            ErrorKind::InvalidAddress => Self::RemoteNodeUnreachable,
            _ => Self::InternalError,
        }
    }
}

/// Converts the status of a failed transfer whose segment still exists.
pub(crate) const fn of_status(status: DtoStatus) -> RsmError {
    match status {
        DtoStatus::RemoteAccess => RsmError::PermissionDenied,
        DtoStatus::LocalProtection => RsmError::BadAddress,
        _ => RsmError::BarrierFailure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// Spec: RSMGEN-01, RSMGEN-07
    #[test]
    fn every_error_has_a_unique_number_and_a_text() {
        let mut before = 0;
        for error in RsmError::ALL {
            assert!(error.code() > before, "{error:?}");
            before = error.code();
            assert_eq!(RsmError::from_code(error.code()), Some(*error));
            assert!(!error.to_string().is_empty());
        }
        for unknown in [-1, 0, 46, 99, 101, 116, 118] {
            assert_eq!(RsmError::from_code(unknown), None);
        }
        assert_eq!(RsmError::BadLibraryVersion.code(), 1);
        assert_eq!(RsmError::BadScatterGather.code(), 14);
        assert_eq!(RsmError::SegmentNotConnected.code(), 45);
        assert_eq!(RsmError::InternalError.code(), 100);
    }

    /// Spec: RSMGEN-07
    #[test]
    fn errors_of_the_transport_become_rsm_errors() {
        let resources = Error::insufficient_resources(dat_core::Subtype::ResourceMemory);
        assert_eq!(RsmError::from(resources), RsmError::InsufficientResources);
        assert_eq!(RsmError::from(Error::timeout_expired()), RsmError::TimedOut);
        assert_eq!(RsmError::from(Error::abort()), RsmError::InternalError);
        assert_eq!(
            of_status(DtoStatus::RemoteAccess),
            RsmError::PermissionDenied
        );
        assert_eq!(of_status(DtoStatus::LocalProtection), RsmError::BadAddress);
        assert_eq!(of_status(DtoStatus::Transport), RsmError::BarrierFailure);
    }
}
