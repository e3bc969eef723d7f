//! Reasons why nodes cannot be reached.

use core::fmt;

use dat_core::event::ConnectionEventKind;

/// Reason why a node was not reached ([`Rsm::unreached`](crate::Rsm::unreached)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreached {
    /// The controller has no such node in its list.
    Unknown,
    /// The host of the node cannot be reached, or does not answer.
    NoHost,
    /// No controller listens at the qualifier of the node, or its adapter refuses connections.
    NoListener,
    /// The node does not have this node in its list, or has it with another address.
    NotAllowed,
    /// The node does not answer in time.
    TimedOut,
    /// The node rejects the connection for another reason: it ends.
    Rejected,
    /// Another program than an exporter listens at the qualifier of the node.
    NoExporter,
    /// The connection failed, or its other end is another node.
    Failed,
    /// The connection broke while a signal was on it, and was made again.
    Broken,
}

impl Unreached {
    /// Returns the reason for the end of an attempt to connect.
    pub(crate) const fn of(kind: ConnectionEventKind) -> Self {
        match kind {
            ConnectionEventKind::Unreachable => Self::NoHost,
            ConnectionEventKind::NonPeerRejected => Self::NoListener,
            ConnectionEventKind::PeerRejected => Self::Rejected,
            ConnectionEventKind::TimedOut => Self::TimedOut,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unknown => "it is not in the list of nodes",
            Self::NoHost => "its host cannot be reached, or does not answer",
            Self::NoListener => "no exporter listens at its qualifier",
            Self::NotAllowed => "it does not know this node, or knows it by another address",
            Self::TimedOut => "it does not answer in time",
            Self::Rejected => "it rejects the connection",
            Self::NoExporter => "what listens at its qualifier is no exporter",
            Self::Failed => "the connection failed",
            Self::Broken => "the connection broke during the signal, which may have arrived",
        })
    }
}
