//! What is known of the connection of each endpoint: it is established at most once, and ends at most once.

use dat_core::event::ConnectionEventKind;

/// How far the connection of an endpoint has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody asked for one since the endpoint was made or reset.
    #[default]
    Idle,
    /// It was asked for, from here.
    Asked,
    /// It was accepted here.
    Accepted,
    /// It stands.
    Stands,
    /// It ended, or the attempt did.
    Over,
}

impl Stage {
    /// Whether something is to come.
    pub(super) const fn lives(self) -> bool {
        matches!(self, Self::Asked | Self::Accepted | Self::Stands)
    }

    /// An event of this kind came.
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
