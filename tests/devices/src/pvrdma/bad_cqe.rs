//! Bad completions.

use backend_mmio::defs::pvrdma::Entry;

/// Error in a completion of a paravirtual adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvrdmaBadCqe {
    /// One bit of the token is inverted.
    Token(u32),
    /// Number of a queue pair that does not exist.
    QueuePair,
    /// Message of the largest possible length.
    Length,
    /// Failure with an unknown status.
    Status,
    /// Producer index that claims more completions than the queue holds.
    Index,
    /// Producer index of all ones.
    AllOnes,
}

impl PvrdmaBadCqe {
    /// Applies the error to a completion.
    pub(crate) fn apply(self, entry: &mut Entry) {
        match self {
            Self::Token(bit) => entry.token ^= 1 << (bit % 64),
            Self::QueuePair => entry.queue_pair ^= 1 << 20,
            Self::Length => entry.length = u32::MAX,
            Self::Status => entry.status = 0x7E,
            Self::Index | Self::AllOnes => {}
        }
    }
}
