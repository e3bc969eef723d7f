//! The state of each endpoint's connection: established at most once, ended at most once.

use dat_core::event::ConnectionEventKind;

/// The stage of an endpoint's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// No connection was requested since the endpoint was created or reset.
    #[default]
    Idle,
    /// This side has requested it.
    Requested,
    /// This side has accepted it.
    Accepted,
    /// It is established.
    Established,
    /// It has ended, or the attempt has.
    Ended,
}

impl Stage {
    /// Returns true if an event must follow.
    pub(super) const fn is_live(self) -> bool {
        matches!(self, Self::Requested | Self::Accepted | Self::Established)
    }

    /// Records an event of this kind.
    pub(super) fn note(&mut self, kind: ConnectionEventKind) {
        use ConnectionEventKind as Kind;
        let next = match (*self, kind) {
            (Self::Requested | Self::Accepted, Kind::Established) => Self::Established,
            (Self::Established, Kind::Disconnected | Kind::Broken)
            | (
                Self::Requested,
                Kind::PeerRejected
                | Kind::NonPeerRejected
                | Kind::TimedOut
                | Kind::Unreachable
                | Kind::Disconnected,
            )
            | (Self::Accepted, Kind::AcceptCompletionError | Kind::Disconnected) => Self::Ended,
            (stage, kind) => panic!("{kind:?} of a connection that is {stage:?}"),
        };
        *self = next;
    }
}
