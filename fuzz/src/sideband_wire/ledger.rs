//! The state of each endpoint's connection: established at most once, ended at most once.

use dat_core::event::ConnectionEventKind;

/// The stage of an endpoint's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// No connection was requested since the endpoint was created or reset.
    #[default]
    Idle,
    /// This side has requested it.
    Asked,
    /// This side has accepted it.
    Accepted,
    /// It is established.
    Stands,
    /// It has ended, or the attempt has.
    Over,
}

impl Stage {
    /// Returns true if an event must follow.
    pub(super) const fn lives(self) -> bool {
        matches!(self, Self::Asked | Self::Accepted | Self::Stands)
    }

    /// Records an event of this kind.
    pub(super) fn note(&mut self, kind: ConnectionEventKind) {
        use ConnectionEventKind as Kind;
        let next = match (*self, kind) {
            (Self::Asked | Self::Accepted, Kind::Established) => Self::Stands,
            (Self::Stands, Kind::Disconnected | Kind::Broken)
            | (
                Self::Asked,
                Kind::PeerRejected
                | Kind::NonPeerRejected
                | Kind::TimedOut
                | Kind::Unreachable
                | Kind::Disconnected,
            )
            | (Self::Accepted, Kind::AcceptCompletionError | Kind::Disconnected) => Self::Over,
            (stage, kind) => panic!("{kind:?} of a connection that is {stage:?}"),
        };
        *self = next;
    }
}
