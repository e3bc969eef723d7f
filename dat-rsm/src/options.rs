//! What an engine and its controllers are made from.

use alloc::vec::Vec;

use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use crate::export::access::Credentials;

/// The number of a node, agreed on by all nodes (`Spec: RSMGEN-09`).
pub type NodeId = u32;

/// The connection qualifier that engines meet on unless they are told otherwise.
pub const DEFAULT_QUALIFIER: u64 = 0x5253;

/// How many objects an engine may have. Tables grow up to these; those of transfers are taken at once.
///
/// What peers take is divided among the nodes that there are, alike, at least 1 to each, so that none can leave the others
/// without: `importers`; `links`, less one for each node and controller, which are for this side to ask for; and half of
/// `requests`, for messages by links that peers asked for. Whoever has its share is refused with INSUFFICIENT_RESOURCES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Segments exported.
    pub exports: usize,
    /// Connections to segments.
    pub imports: usize,
    /// Connections that importers have to the segments exported here; each node may have its share.
    pub importers: usize,
    /// Local memory handles.
    pub local_memory: usize,
    /// Barriers.
    pub barriers: usize,
    /// Connections to nodes.
    pub links: usize,
    /// Calls that transfer at the same time.
    pub calls: usize,
    /// Requests on the way at the same time.
    pub requests: usize,
    /// Bytes exported in all; 0 is no limit (`Spec: RSMST-05`).
    pub exported_bytes: u64,
    /// Bytes per exported segment; 0 is no limit.
    pub segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exports: 1024,
            imports: 1024,
            importers: 4096,
            local_memory: 1024,
            barriers: 1024,
            links: 256,
            calls: 64,
            requests: 1024,
            exported_bytes: 0,
            segment_bytes: 0,
        }
    }
}

/// The properties of an engine. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of this node.
    pub node: NodeId,
    /// Who this process is.
    pub credentials: Credentials,
    /// Rights on segments published without a list: three octal digits (`Spec: RSMEX-04`).
    pub default_access: u32,
    /// Tells this life of the node from earlier and later ones: random, or the time.
    pub incarnation: u64,
    /// How long a node may take to answer, to be connected to or to be found again after a connection broke.
    pub connect_timeout: u32,
    /// How often a link on which nothing is on the way is tried by a small read, so that a node that ended without a word
    /// is noticed; 0 is never. The node's process has no part in the answer.
    pub probe_interval: u32,
    /// How long importers may take to let go of a segment before its keys are destroyed under them; 0 is not at all.
    pub revocation_grace: u32,
    /// Messages that a node may send before it is told more.
    pub credits: u16,
    /// The page size that segments are multiples of.
    pub page_size: u64,
    /// How many objects there may be.
    pub limits: Limits,
}

impl Options {
    /// The usual properties, for a node and a life of it.
    pub fn new(node: NodeId, incarnation: u64) -> Self {
        Self {
            node,
            credentials: Credentials::default(),
            default_access: 0o644,
            incarnation,
            connect_timeout: 2_000_000,
            probe_interval: 0,
            revocation_grace: 100_000,
            credits: 16,
            page_size: 4096,
            limits: Limits::default(),
        }
    }
}

/// Where a node is reached from a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// The node.
    pub node: NodeId,
    /// The name of its controller.
    pub controller: &'static str,
    /// Its address. A node that connects must come from here.
    pub address: IaAddress,
    /// The connection qualifier that its engine listens on.
    pub qualifier: u64,
}

/// An adapter that becomes a controller.
///
/// Of the adapter's storage the engine takes, while the controller is open: 1 protection zone, 1 notification object, 4
/// event dispatchers, 1 public service point, 2 regions and about 90 events; for each link 1 endpoint, 1 region and some
/// 150 records; for each segment 1 region and 1 for each kind of connection to it; for each local memory handle 1; for
/// each immediate entry on the way 1.
pub struct ControllerConfig<'s, B: Backend, L: RawLock> {
    /// Type and instance, such as `verbs0`; `loopback` reaches the own node only (`Spec: RSMCT-01`).
    pub name: &'static str,
    /// The adapter; all of it is the engine's.
    pub ia: Ia<'s, B, L>,
    /// The connection qualifier to listen on; 0: none, for a node that imports only.
    pub qualifier: u64,
    /// All nodes that can be reached, the own one included.
    pub nodes: Vec<NodeEntry>,
}
