//! Shares: limits for each node in the tables that peers fill.
//!
//! No node can use up the share of another.

use alloc::vec::Vec;

use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use crate::error::{Result, RsmError};
use crate::id::NodeId;
use crate::options::Options;
use crate::port::Port;

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
