//! Reasons why nodes cannot be reached.

use core::fmt;

use dat_core::backend::Backend;
use dat_core::event::ConnectionEventKind;
use dat_core::id::EpId;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::RsmError;
use crate::id::ControllerId;
use crate::import::ImportState;
use crate::link::wire::Rejection;
use crate::options::NodeId;

/// Reason why a node was not reached ([`Rsm::unreached`]).
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
    /// The node rejects the connection for another reason: it ends, or is no exporter.
    Rejected,
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
            Self::Failed => "the connection failed",
            Self::Broken => "the connection broke during the signal, which may have arrived",
        })
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Returns the reason for the last REMOTE_NODE_UNREACHABLE of a node; `None` if there was none.
    #[must_use]
    pub fn unreached(&self, controller: ControllerId, node: NodeId) -> Option<Unreached> {
        let index = self.state.with(|state| self.port_of(state, controller));
        let index = index.ok()?;
        if self.ports.get(index)?.node(node).is_none() {
            return Some(Unreached::Unknown);
        }
        self.state.with(|state| {
            let all = &state.ports.get(index)?.unreached;
            let found = all.iter().find(|(failed, _)| *failed == node)?;
            Some(found.1)
        })
    }

    /// Returns why a link failed: no share left at the node, or unreachable for a reason.
    pub(crate) fn why_rejected(
        &self,
        index: usize,
        kind: ConnectionEventKind,
        ep: EpId,
    ) -> (RsmError, Unreached) {
        let private_data = match kind {
            ConnectionEventKind::PeerRejected => self.private_data(index, ep),
            _ => None,
        };
        let rejection = private_data.and_then(|private_data| Rejection::decode(&private_data).ok());
        let unreachable = RsmError::RemoteNodeUnreachable;
        match rejection.map(|rejection| rejection.error) {
            Some(RsmError::InsufficientResources) => {
                (RsmError::InsufficientResources, Unreached::Rejected)
            }
            Some(RsmError::RemoteNodeUnreachable) => (unreachable, Unreached::NotAllowed),
            _ => (unreachable, Unreached::of(kind)),
        }
    }
}

impl State {
    /// Gives up the imports that wait for a node; keeps the reason if it was not reached.
    pub(crate) fn give_up_node(
        &mut self,
        index: usize,
        node: NodeId,
        why: RsmError,
        reason: Unreached,
    ) {
        if why == RsmError::RemoteNodeUnreachable {
            self.not_reached(index, node, reason);
        }
        for (_, import) in self.imports.iter_mut() {
            if import.port == index && import.node == node && import.needs_link() {
                import.give_up(why);
            }
        }
    }

    /// Lets the imports that wait for a node try again later, until their deadlines.
    ///
    /// A new import does so only where nothing listens: the backlog may be full. For any other
    /// reason it is given up.
    ///
    /// Spec: RSMST-07
    pub(crate) fn retry_node(
        &mut self,
        index: usize,
        node: NodeId,
        why: RsmError,
        reason: Unreached,
        now: Instant,
        limit: u32,
    ) {
        let unreachable = why == RsmError::RemoteNodeUnreachable;
        let full = unreachable && reason == Unreached::NoListener;
        if unreachable && !full {
            self.not_reached(index, node, reason);
        }
        for (_, import) in self.imports.iter_mut() {
            if import.port != index || import.node != node || !import.needs_link() {
                continue;
            }
            if import.state == ImportState::Connecting && !full {
                import.give_up(why);
            } else {
                import.unreached = reason;
                import.retry_later(now, limit);
            }
        }
        self.remind(None);
    }
}
