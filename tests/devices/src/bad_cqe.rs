//! Bad completions.

use backend_mmio::defs::mlx5::{Completion, CompletionKind, CompletionTail, Syndrome};

/// Error in a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCqe {
    /// Descriptor index plus 1: a descriptor that is not the oldest.
    Index,
    /// Number of a queue pair that does not exist.
    QueuePair,
    /// User index without a queue pair.
    UserIndex,
    /// Undefined completion kind.
    Kind,
    /// Receive of the largest possible length.
    Length,
    /// Failure with an unknown syndrome.
    Syndrome,
    /// One ring slot is skipped; the completion follows an unwritten slot.
    Phase,
    /// Last word of all ones.
    AllOnes,
    /// One bit of the descriptor's identification is inverted; the bit is below [`BadCqe::BITS`].
    Bit(u32),
    /// The whole ring is overwritten by noise from this seed.
    Noise(u64),
}

impl BadCqe {
    /// Bits that identify a descriptor: user index, queue pair, index and kind.
    pub const BITS: u32 = 24 + 24 + 16 + 4;

    /// Applies the error to a completion.
    pub(crate) fn apply(self, entry: &mut Completion, tail: &mut CompletionTail) {
        match self {
            Self::Index => tail.0 = tail.0.wrapping_add(1 << 16),
            Self::QueuePair => entry.queue_pair ^= 1 << 20,
            Self::UserIndex => entry.user_index ^= 1 << 5,
            Self::Kind => *tail = CompletionTail::new(tail.index(), CompletionKind(9), false),
            Self::Length => entry.length = u32::MAX,
            Self::Syndrome => {
                entry.syndrome = Syndrome(0x7E);
                let failed = CompletionKind::FAILED_REQUEST;
                *tail = CompletionTail::new(tail.index(), failed, false);
            }
            Self::AllOnes => *tail = CompletionTail::ALL_ONES,
            Self::Bit(bit @ 0..24) => entry.user_index ^= 1 << bit,
            Self::Bit(bit @ 24..48) => entry.queue_pair ^= 1 << (bit - 24),
            Self::Bit(bit @ 48..64) => tail.0 ^= 1 << (bit - 48 + 16),
            Self::Bit(bit) => tail.0 ^= 1 << (bit % 4 + 4),
            Self::Phase | Self::Noise(_) => {}
        }
    }
}

/// Returns the next pseudo-random number of a sequence.
pub(crate) fn draw(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 31) as u32
}
