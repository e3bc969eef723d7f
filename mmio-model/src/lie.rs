//! Completions that are not so.

use backend_mmio::mlx5::defs::{Completion, CompletionKind, CompletionTail, Syndrome};

/// What is wrong with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It names a descriptor that is not the oldest.
    Index,
    /// It names a queue pair that there is none of.
    QueuePair,
    /// It names a place of queue pairs that has none.
    UserIndex,
    /// It is of a kind that nobody asks for.
    Kind,
    /// It is a receive of as many bytes as can be.
    Length,
    /// It is a failure of no known kind.
    Syndrome,
    /// It lies behind a place in which none was written.
    Phase,
    /// It is ones.
    AllOnes,
    /// One bit of what names its descriptor is the other way round: one below [`Lie::BITS`].
    Bit(u32),
    /// The whole ring is noise, drawn from this.
    Noise(u64),
}

impl Lie {
    /// The bits of what names a descriptor: user's index, queue pair, index and kind.
    pub const BITS: u32 = 24 + 24 + 16 + 4;

    /// The completion as it is told.
    pub(crate) fn tell(self, entry: &mut Completion, tail: &mut CompletionTail) {
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

/// The next number of a sequence that looks random.
pub(crate) fn draw(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 31) as u32
}
