//! Nodes that cannot be reached, and the imports that wait for them.

use dat_core::backend::Backend;
use dat_core::event::ConnectionEventKind;
use dat_core::id::EpId;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::RsmError;
use crate::id::{ControllerId, NodeId};
use crate::import::ImportState;
use crate::unreached::Unreached;
use crate::wire::{Rejection, WireError};

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
        let rejection = private_data.map(|private_data| {
            let decoded = Rejection::decode(&private_data);
            // A node that ends between a request and its answer says nothing.
            let is_empty = private_data.iter().all(|byte| *byte == 0);
            decoded.map_err(|error| error == WireError::Foreign && !is_empty)
        });
        let unreachable = RsmError::RemoteNodeUnreachable;
        match rejection.map(|rejection| rejection.map(|rejection| rejection.error)) {
            Some(Ok(RsmError::InsufficientResources)) => {
                (RsmError::InsufficientResources, Unreached::Rejected)
            }
            Some(Ok(RsmError::RemoteNodeUnreachable)) => (unreachable, Unreached::NotAllowed),
            Some(Err(true)) => (unreachable, Unreached::NoExporter),
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
    /// A new import does so only where nothing listens, for a shorter time: the backlog may be
    /// full. For any other reason it is given up.
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
        let mut is_over = unreachable && !full;
        for (_, import) in self.imports.iter_mut() {
            if import.port != index || import.node != node || !import.needs_link() {
                continue;
            }
            if import.state == ImportState::Connecting && !full {
                import.give_up(why);
            } else {
                import.unreached = reason;
                import.retry_later(now, limit);
                if full && import.is_late(now) {
                    import.give_up(why);
                    is_over = true;
                }
            }
        }
        if is_over {
            self.not_reached(index, node, reason);
        }
        self.remind(None);
    }
}
