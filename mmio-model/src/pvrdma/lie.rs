//! Completions that are not so.

use backend_mmio::pvrdma::defs::Entry;

/// What is wrong with a completion of a paravirtual adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvrdmaLie {
    /// One bit of what names its descriptor is the other way round.
    Token(u32),
    /// It names a queue pair that there is none of.
    QueuePair,
    /// It is a message of as many bytes as can be.
    Length,
    /// It is a failure of no known kind.
    Status,
    /// There are more of them than the queue has room for.
    Index,
    /// The index is ones.
    AllOnes,
}

impl PvrdmaLie {
    /// The completion as it is told.
    pub(crate) fn tell(self, entry: &mut Entry) {
        match self {
            Self::Token(bit) => entry.token ^= 1 << (bit % 64),
            Self::QueuePair => entry.queue_pair ^= 1 << 20,
            Self::Length => entry.length = u32::MAX,
            Self::Status => entry.status = 0x7E,
            Self::Index | Self::AllOnes => {}
        }
    }
}
