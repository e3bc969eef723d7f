//! Parameters of an engine and its controllers.

use alloc::vec::Vec;

use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use crate::access::Credentials;
use crate::id::NodeId;

/// Default connection qualifier of an engine.
pub const DEFAULT_QUALIFIER: u64 = 0x5253;

/// Limits on the number of objects of an engine.
///
/// Tables grow up to their limits; the engine allocates the tables of transfers (`calls`,
/// `requests`) when it is made.
///
/// Four resources that peers consume are divided equally among the nodes, at least 1 for each, so
/// that no node can use up the share of another:
/// - `importers`;
/// - `links`, minus one for each node and controller, which this side needs for its own links;
/// - half of `requests`, for messages on links that peers asked for;
/// - half of `calls`, for calls beyond the other half, which all nodes have in common.
///
/// A node that has used its share is refused with INSUFFICIENT_RESOURCES, and so is a call to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Exported segments.
    pub exports: usize,
    /// Connections to segments.
    pub imports: usize,
    /// Connections of importers to the segments exported here; each node has a share.
    pub importers: usize,
    /// Local memory handles.
    pub local_memory: usize,
    /// Barriers.
    pub barriers: usize,
    /// Links: connections to nodes.
    pub links: usize,
    /// Calls that transfer or signal at the same time.
    pub calls: usize,
    /// Pending requests.
    pub requests: usize,
    /// Total exported bytes; 0 is no limit (`Spec: RSMST-05`).
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
            calls: 128,
            requests: 1024,
            exported_bytes: 0,
            segment_bytes: 0,
        }
    }
}

/// Parameters of an engine; times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of this node.
    pub node: NodeId,
    /// User and group of this process.
    pub credentials: Credentials,
    /// Rights on segments published without an access list, three octal digits (`Spec: RSMEX-04`).
    pub default_access: u32,
    /// Identifies this incarnation of the node: a random number, or the start time.
    pub incarnation: u64,
    /// Time limit for connecting to a node, and for everything that a node owes.
    ///
    /// Attempts to connect are repeated within it, and a node returns within it after a broken
    /// link. A link ends on which requests or messages do not move on for so long; they have a
    /// microsecond more for each byte that is pending there. It must be longer than the transport
    /// needs to replace a lost packet.
    pub connect_timeout: u32,
    /// Time limit for the repeated attempts of a new connection where nothing listens; those of a
    /// granted one have [`connect_timeout`](Self::connect_timeout), which limits these, too.
    pub listener_timeout: u32,
    /// Interval of the probe of an idle link; 0 is never.
    ///
    /// The probe is a small read, which finds a node that ended silently. The peer's device answers
    /// it without the peer's process.
    pub probe_interval: u32,
    /// Grace period for importers before a segment's keys are destroyed; 0 is none.
    pub revocation_grace: u32,
    /// Messages that a node may send before it needs new credits.
    pub credits: u16,
    /// Page size in bytes; segments are multiples of it.
    pub page_size: u64,
    /// True if waits of the calls return at once: each look polls the adapter, and no event of it
    /// is to wake a call.
    pub polled: bool,
    /// Limits on the number of objects.
    pub limits: Limits,
}

impl Options {
    /// Returns the default parameters for a node and one incarnation of it.
    pub fn new(node: NodeId, incarnation: u64) -> Self {
        Self {
            node,
            credentials: Credentials::default(),
            default_access: 0o644,
            incarnation,
            connect_timeout: 2_000_000,
            listener_timeout: u32::MAX,
            probe_interval: 0,
            revocation_grace: 100_000,
            credits: 16,
            page_size: 4096,
            polled: false,
            limits: Limits::default(),
        }
    }
}

/// The address of a node as a controller reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// The node.
    pub node: NodeId,
    /// Name of its controller.
    pub controller: &'static str,
    /// Address of the node. A connection request from it must come from this host.
    pub address: IaAddress,
    /// Connection qualifier that the node's engine listens on.
    pub qualifier: u64,
}

/// An adapter that becomes a controller.
///
/// An open controller takes these objects of the adapter's storage:
/// - 1 protection zone, 1 notification object, 4 event dispatchers, 1 public service point, 2
///   regions and about 120 events;
/// - for each link 1 endpoint, 1 region and about 150 records;
/// - for each segment 1 region, and 1 for each kind of connection to it;
/// - for each local memory handle 1 region;
/// - for each pending immediate entry 1 region.
pub struct ControllerConfig<'s, B: Backend, L: RawLock> {
    /// Type and instance, such as `verbs0`; `loopback` reaches only the own node
    /// (`Spec: RSMCT-01`).
    pub name: &'static str,
    /// The adapter; the engine owns all of it.
    pub ia: Ia<'s, B, L>,
    /// Connection qualifier to listen on; 0 for a node that only imports.
    pub qualifier: u64,
    /// All nodes that the controller can reach, including this one.
    pub nodes: Vec<NodeEntry>,
}
