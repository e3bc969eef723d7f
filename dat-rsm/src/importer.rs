//! Connections of nodes to the segments exported here.

use dat_core::time::Instant;

use crate::access::Permission;
use crate::id::{Handle, NodeId};

/// A connection on its exporter's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Importer {
    /// Link of the connection; null while the link is broken.
    ///
    /// Only messages of this link may name the connection.
    pub(crate) link: Handle,
    /// Node and incarnation of the importer.
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    /// The segment.
    pub(crate) export: Handle,
    /// The importer's handle of the connection.
    pub(crate) import: u64,
    /// Rights, fixed for the life of the connection.
    pub(crate) permission: Permission,
    /// Set after a change, until the importer acknowledges that nothing uses the old keys.
    pub(crate) awaited: bool,
    /// Time at which the connection is forgotten, while its link is broken.
    pub(crate) until: Option<Instant>,
}
