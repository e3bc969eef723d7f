//! Options of an adapter.

use crate::proto::PathMtu;

/// Options of an adapter.
#[derive(Clone, Debug)]
pub struct RoceOptions {
    /// Name of the adapter.
    pub name: &'static str,
    /// Random bytes, other ones for each adapter (ROCE-175).
    pub secret: [u8; 16],
    /// Most connections, with those that ended a moment ago; rounded up to a power of two.
    pub connections: usize,
    /// Most regions and bound windows; rounded up to a power of two.
    pub keys: usize,
    /// Connection requests that wait for the consumer's answer (ROCE-174).
    pub backlog: usize,
    /// Packets that a queue pair has under way (ROCE-66).
    pub window: u32,
    /// Largest path MTU.
    pub mtu: PathMtu,
}

impl RoceOptions {
    /// Returns the usual options, with random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            name: "roce0",
            secret,
            connections: 1 << 14,
            keys: 1 << 16,
            backlog: 1024,
            window: 32,
            mtu: PathMtu::Bytes4096,
        }
    }
}
