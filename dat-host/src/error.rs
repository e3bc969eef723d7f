//! Errors of calls and of operations.

use std::fmt;

use dat_core::backend::{BackendError, NotLocal};
use dat_core::event::ConnectionEventKind;
use dat_core::flags::DtoStatus;

#[cfg(feature = "rsm")]
use crate::connection::Peer;

/// Result of the calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call or of an operation.
///
/// Print the `Error`, which has the text of the kind or the status in it. These have only `Debug`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The core refused the call; names the parameter, and nothing was posted.
    Refused(dat_core::Error),
    /// The operation was posted and failed, with this completion status.
    ///
    /// | status | cause |
    /// |---|---|
    /// | [`Flushed`](DtoStatus::Flushed) | the connection ended before the operation was done |
    /// | [`Transport`](DtoStatus::Transport) | the peer does not answer |
    /// | [`RemoteAccess`](DtoStatus::RemoteAccess) | a Write or Read of memory that the peer has revoked, or never opened |
    /// | [`RemoteResponder`](DtoStatus::RemoteResponder) | a Send of a message that is longer than the peer's receive |
    /// | [`LocalLength`](DtoStatus::LocalLength) | a receive that is shorter than the message |
    ///
    /// Each but `Flushed` ends the connection, so that later operations are flushed.
    Failed(DtoStatus),
    /// The connection was not made, or it ended.
    ///
    /// `Disconnected` is the end by one of the programs, `Broken` that by a failure.
    Connection(ConnectionEventKind),
    /// A connection, or a listener, that had to use shared memory of this host could not: this
    /// adapter or the peer takes no other way (`path=local`).
    NotLocal(NotLocal),
    /// The peer rejected the connection, with this private data.
    Rejected(Vec<u8>),
    /// The adapter was closed before the operation completed.
    Closed,
    /// An option of a new endpoint was set for one that exists; names the option.
    ///
    /// `start_on` of [`Connecting`](crate::Connecting) and [`Accepting`](crate::Accepting) gets an
    /// endpoint with its own attributes, queue and dispatcher.
    NotApplicable(&'static str),
    /// A range reaches outside of its memory, or ends before it starts.
    OutOfRange {
        /// First byte of the range.
        start: u64,
        /// First byte of the range after its last.
        end: u64,
        /// Length of the memory in bytes.
        length: u64,
    },
    /// A listener was asked to keep more requests than its adapter can have connections.
    Backlog {
        /// Requests that were asked for.
        asked: usize,
        /// `max_eps` of the adapter.
        most: usize,
    },
    /// Bytes or a text do not have the form that is needed; names the form.
    Malformed(&'static str),
    /// No device of an address can be opened by this build; names what is missing.
    NotBuiltIn {
        /// Scheme of the address.
        scheme: String,
        /// Feature of this crate that adds the scheme; `None` if there is no such scheme.
        feature: Option<&'static str>,
    },
    /// The device of an address cannot be opened.
    Device {
        /// Name of the device.
        name: String,
        /// Reason; `Device` also stands for a device that does not exist.
        cause: BackendError,
    },
    /// A call of remote shared memory failed.
    #[cfg(feature = "rsm")]
    SharedMemory(dat_rsm::RsmError),
    /// A node of remote shared memory was not reached.
    #[cfg(feature = "rsm")]
    NodeUnreachable {
        /// Number of the node.
        node: dat_rsm::NodeId,
        /// The node in the list of peers; `None` if it is not in the list, or is this node.
        peer: Option<Peer>,
        /// Reason.
        reason: dat_rsm::Unreached,
    },
    /// A vector of remote shared memory failed; names the entry.
    #[cfg(feature = "rsm")]
    Vector {
        /// Number of the exporter's node.
        node: dat_rsm::NodeId,
        /// Error, with the number of entries that are left; the first of these failed.
        error: dat_rsm::VectorError,
    },
    /// An access list of remote shared memory is refused; names the entry.
    #[cfg(feature = "rsm")]
    AccessList(dat_rsm::AccessFault),
    /// A parameter of remote shared memory is not aligned to pages.
    #[cfg(feature = "rsm")]
    Unaligned {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its value.
        value: u64,
        /// Page size in bytes; the value must be a multiple of it.
        multiple: u64,
    },
    /// A node of remote shared memory is in the list of peers twice, or is this node.
    #[cfg(feature = "rsm")]
    DuplicateNode(dat_rsm::NodeId),
    /// The system refused to start a thread, to resolve a name or to make a socket.
    System(std::io::Error),
}

impl Error {
    /// Returns the error of the core, with the name of the parameter, if the core refused a call.
    pub const fn core(&self) -> Option<dat_core::Error> {
        match self {
            Self::Refused(error) => Some(*error),
            _ => None,
        }
    }

    /// Returns the completion status of a posted operation that failed.
    pub const fn status(&self) -> Option<DtoStatus> {
        match self {
            Self::Failed(status) => Some(*status),
            _ => None,
        }
    }

    /// Returns the error of the interface, if a call of remote shared memory failed.
    #[cfg(feature = "rsm")]
    pub const fn rsm(&self) -> Option<dat_rsm::RsmError> {
        match self {
            Self::SharedMemory(error) => Some(*error),
            Self::NodeUnreachable { .. } | Self::NotLocal(_) => {
                Some(dat_rsm::RsmError::RemoteNodeUnreachable)
            }
            Self::Vector { error, .. } => Some(error.error),
            Self::AccessList(_) => Some(dat_rsm::RsmError::BadAccessList),
            Self::Unaligned { .. } => Some(dat_rsm::RsmError::BadMemoryAlignment),
            _ => None,
        }
    }
}

/// Returns the words for a completion status.
const fn failure(status: DtoStatus) -> &'static str {
    match status {
        DtoStatus::Success => "it succeeded",
        DtoStatus::Flushed => "the connection ended before it was done",
        DtoStatus::LocalLength => "the message is longer than the memory of the receive",
        DtoStatus::LocalEndpoint => "the endpoint does not support it",
        DtoStatus::LocalProtection => "the device refuses access to its memory",
        DtoStatus::BadResponse => "the peer's answer makes no sense",
        DtoStatus::RemoteAccess => "the peer's device refuses access to the peer's memory",
        DtoStatus::RemoteResponder => "the peer could not do it; its receive may be too short",
        DtoStatus::Transport => "the peer does not answer",
        DtoStatus::ReceiverNotReady => "the peer posted no receive in time",
        DtoStatus::PartialPacket => "part of the packet is missing",
        DtoStatus::RmrOperationFailed => "the device could not bind the window",
        DtoStatus::LocalMemoryManagement => "the device could not change its memory",
    }
}

/// Returns the words for the end of a connection or of an attempt.
const fn ending(kind: ConnectionEventKind) -> &'static str {
    match kind {
        ConnectionEventKind::Established => "it is established",
        ConnectionEventKind::PeerRejected => "the peer rejected it",
        ConnectionEventKind::NonPeerRejected => {
            "nothing listens at the qualifier, or it has no room for another request"
        }
        ConnectionEventKind::AcceptCompletionError => "the acceptance did not reach the peer",
        ConnectionEventKind::Disconnected => "one side ended it",
        ConnectionEventKind::Broken => "the peer or the way to it failed",
        ConnectionEventKind::TimedOut => "the peer did not answer in time",
        ConnectionEventKind::Unreachable => "the peer's host cannot be reached",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "refused: {error}"),
            Self::Failed(status) => {
                write!(f, "the operation failed: {} ({status:?})", failure(*status))
            }
            Self::Connection(kind) => write!(f, "no connection: {} ({kind:?})", ending(*kind)),
            Self::NotLocal(why) => write!(f, "no shared memory: {why}; {}", why.remedy()),
            Self::Rejected(data) => write!(
                f,
                "the peer rejected the connection ({} bytes of private data)",
                data.len()
            ),
            Self::Closed => f.write_str("the adapter is closed"),
            Self::NotApplicable(option) => write!(
                f,
                "`{option}` is for a new endpoint, but `start_on` takes one that exists"
            ),
            Self::OutOfRange { end, length, .. } if end > length => {
                write!(f, "the range ends at {end}, the memory at {length}")
            }
            Self::OutOfRange { start, length, .. } if start > length => {
                write!(
                    f,
                    "the range starts at {start}, the memory ends at {length}"
                )
            }
            Self::OutOfRange { start, end, .. } => {
                write!(f, "the range starts at {start}, after its end at {end}")
            }
            Self::Backlog { asked, most } => write!(
                f,
                "a backlog of {asked} requests is too long: the adapter has at most {most} connections \
                (`max_eps`)"
            ),
            Self::Malformed(form) => write!(f, "malformed: {form} is needed"),
            Self::NotBuiltIn {
                scheme,
                feature: Some(feature),
            } => write!(
                f,
                "`{scheme}://` needs the feature `{feature}` of `dat-host`, which is off"
            ),
            Self::NotBuiltIn { scheme, .. } => write!(f, "`{scheme}://` is no known scheme"),
            Self::Device { name, cause } => {
                write!(f, "the device `{name}` cannot be opened: {cause:?}")
            }
            #[cfg(feature = "rsm")]
            Self::SharedMemory(error) => write!(f, "shared memory: {error}"),
            #[cfg(feature = "rsm")]
            Self::NodeUnreachable { node, peer, reason } => {
                write!(f, "shared memory: node {node}")?;
                if let Some(peer) = peer {
                    write!(f, " at {peer}")?;
                }
                write!(f, " is unreachable: {reason}")
            }
            #[cfg(feature = "rsm")]
            Self::Vector { node, error } => {
                write!(f, "shared memory: vector of node {node}: {error}")
            }
            #[cfg(feature = "rsm")]
            Self::AccessList(fault) => write!(f, "shared memory: access list: {fault}"),
            #[cfg(feature = "rsm")]
            Self::Unaligned {
                parameter,
                value,
                multiple,
            } => write!(
                f,
                "shared memory: {parameter} {value:#x} is not a multiple of {multiple:#x}"
            ),
            #[cfg(feature = "rsm")]
            Self::DuplicateNode(node) => write!(
                f,
                "shared memory: node {node} is in the list of peers twice, or is this node"
            ),
            Self::System(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            #[cfg(feature = "rsm")]
            Self::SharedMemory(error) => Some(error),
            #[cfg(feature = "rsm")]
            Self::Vector { error, .. } => Some(error),
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<dat_core::Error> for Error {
    fn from(error: dat_core::Error) -> Self {
        Self::Refused(error)
    }
}

#[cfg(feature = "rsm")]
impl From<dat_rsm::RsmError> for Error {
    fn from(error: dat_rsm::RsmError) -> Self {
        Self::SharedMemory(error)
    }
}

/// The error of an operation on memory; returns the memory.
///
/// `?` in a function that returns an [`Error`] drops the memory and keeps the error.
pub struct Failed<M> {
    /// The error.
    pub error: Error,
    /// The memory of the operation; its content is undefined if the operation writes it.
    pub memory: M,
}

impl<M> Failed<M> {
    pub(crate) fn new(error: impl Into<Error>, memory: M) -> Self {
        Self {
            error: error.into(),
            memory,
        }
    }
}

impl<M> fmt::Debug for Failed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Failed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M> std::error::Error for Failed<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl<M> From<Failed<M>> for Error {
    fn from(failed: Failed<M>) -> Self {
        failed.error
    }
}
