//! Connections that nodes have to the segments exported here.

use dat_core::time::Instant;

use crate::export::access::Permission;
use crate::id::Handle;
use crate::options::NodeId;

/// A connection as its exporter knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Importer {
    /// Where its messages come from; no other link may speak for it. Null while its link is broken.
    pub(crate) link: Handle,
    /// The node, and its life.
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    /// The segment.
    pub(crate) export: Handle,
    /// The importer's word for it.
    pub(crate) import: u64,
    /// Its rights, fixed for its life.
    pub(crate) permission: Permission,
    /// It was told of a change and has not said yet that nothing uses the old keys.
    pub(crate) awaited: bool,
    /// When it is forgotten, while its link is broken.
    pub(crate) until: Option<Instant>,
}
