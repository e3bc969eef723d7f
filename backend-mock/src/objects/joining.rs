//! Names of queue pairs that are joined by commands.

/// Name of a queue pair for a join: an adapter, and a number there.
pub type Name = [u32; 2];

/// A queue pair that waits for its peer.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) key: u32,
    pub(crate) peer: Name,
}
