//! Shares: limits for each node in the tables that peers fill.
//!
//! No node can use up the share of another.

use alloc::vec::Vec;

use dat_core::backend::Backend;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::flight::Flight;
use crate::id::{Handle, NodeId};
use crate::link::Link;
use crate::options::Options;
use crate::port::Port;
use crate::wire::Greeting;

/// Shares of a node, equal for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Connections to segments exported here.
    pub(crate) importers: usize,
    /// Links that the node asked for.
    pub(crate) links: usize,
    /// Pending messages on the links that the node asked for.
    pub(crate) messages: usize,
    /// Calls that wait for the node, beside the common ones.
    pub(crate) calls: usize,
    /// Calls of all nodes together up to which no share counts.
    pub(crate) common_calls: usize,
}

impl Shares {
    /// Divides the tables among the nodes, after reserving the links of this side.
    pub(crate) fn new<B: Backend, L: RawLock>(
        options: &Options,
        ports: &[Port<'_, B, L>],
    ) -> Result<Self> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for port in ports {
            nodes
                .try_reserve(port.nodes.len())
                .map_err(|_| RsmError::InsufficientMemory)?;
            nodes.extend(port.nodes.iter().map(|entry| entry.node));
        }
        let own_links = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        let limits = &options.limits;
        Ok(Self {
            importers: share(limits.importers, nodes.len()),
            links: share(limits.links.saturating_sub(own_links), nodes.len()),
            // The other half is for transfers, and for messages on the links of this side.
            messages: share(limits.requests / 2, nodes.len()),
            calls: share(limits.calls / 2, nodes.len()),
            common_calls: limits.calls.div_ceil(2),
        })
    }
}

fn share(total: usize, nodes: usize) -> usize {
    total.checked_div(nodes).unwrap_or(total).max(1)
}

impl State {
    /// Returns true if a node may connect to one more segment.
    ///
    /// A connection that lost its link and did not return counts until its slot is needed; then the
    /// oldest one is removed.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_importer(&mut self, node: NodeId) -> bool {
        let mut count = 0_usize;
        let mut lost: Option<(Handle, Option<Instant>)> = None;
        for (handle, importer) in self.importers.iter().filter(|(_, it)| it.node == node) {
            count = count.saturating_add(1);
            let older = lost.is_none_or(|(_, until)| importer.until < until);
            if importer.until.is_some() && older {
                lost = Some((handle, importer.until));
            }
        }
        if count < self.shares.importers {
            return true;
        }
        match lost {
            Some((handle, _)) => self.importers.remove(handle).is_some(),
            None => false,
        }
    }

    /// Returns true if a node may have one more link that it asked for.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_link(&self, node: NodeId) -> bool {
        self.links_from(node).count() < self.shares.links
    }

    /// Returns the link that a new link of the same incarnation of a node replaces.
    ///
    /// A process has one link through a port at a time, so the old one broke without an event.
    pub(crate) fn superseded_link(&self, port: usize, peer: &Greeting) -> Option<Handle> {
        self.links_from(peer.node)
            .find(|(_, link)| {
                let incarnation = link.peer.map(|peer| peer.incarnation);
                link.port == port && incarnation == Some(peer.incarnation)
            })
            .map(|(handle, _)| handle)
    }

    /// Returns true if one more message may be pending on a link.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_message(&self, link: &Link) -> bool {
        let under_way = |node| {
            let links = self.links_from(node).map(|(_, link)| link.messages());
            links.fold(0, usize::saturating_add)
        };
        link.active || under_way(link.node) < self.shares.messages
    }

    /// Starts a call, if its node may have one more.
    ///
    /// Half of the table is common. So calls that hang on one node leave room for those to others.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: the table, or the share of the node, is used up.
    ///
    /// Spec: RSMST-08
    pub(crate) fn begin_flight(&mut self, flight: Flight) -> Result<Handle> {
        let calls_to = |node| {
            let all = self.flights.iter();
            all.filter(|(_, other)| other.node == node).count()
        };
        let crowded = self.flights.len() >= self.shares.common_calls;
        if crowded && calls_to(flight.node) >= self.shares.calls {
            return Err(RsmError::InsufficientResources);
        }
        let begun = self.flights.insert(flight);
        begun.ok_or(RsmError::InsufficientResources)
    }

    fn links_from(&self, node: NodeId) -> impl Iterator<Item = (Handle, &Link)> {
        let is_passive = move |link: &Link| !link.active && link.node == node;
        self.links.iter().filter(move |(_, link)| is_passive(link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMST-05
    #[test]
    fn every_node_has_at_least_one_slot() {
        assert_eq!(share(4096, 2), 2048);
        assert_eq!(share(5, 3), 1);
        assert_eq!(share(2, 3), 1);
        assert_eq!(share(0, 3), 1);
        assert_eq!(share(7, 0), 7);
    }
}
