//! Slots for queue pairs, two per queue pair, and the user indices that name them.

use core::sync::atomic::{AtomicU32, Ordering};

use dat_core::backend::SharedReceiveQueueKey;
use dat_core::sync::Word64;

use super::queue_cell::{NO_QUEUE, QueueCell};

/// Slot for one generation of a queue pair; each queue pair has two adjacent slots.
///
/// A reset ends a generation and starts the next one, in the other slot. A thread that still uses
/// the queue during the reset then accesses an unused slot. After every reset and every end the
/// core acquires the lock of each dispatcher in turn, so that such a thread is done before the slot
/// is reused.
#[derive(Debug)]
pub struct QueuePairSlot {
    /// User index in completions; 0 if the slot was never used.
    pub(crate) user_index: AtomicU32,
    /// As `user_index`; `NO_QUEUE` after a fault, so that no completion matches.
    pub(crate) expected: AtomicU32,
    /// Device number; `NO_QUEUE` once the generation has ended.
    pub(crate) number: AtomicU32,
    /// The core's token.
    pub(crate) token: Word64,
    pub(crate) requests: QueueCell,
    pub(crate) receives: QueueCell,
    /// Index of the shared receive queue plus 1, or 0.
    ///
    /// With a shared queue, `receives` stays empty.
    pub(crate) shared: AtomicU32,
}

impl QueuePairSlot {
    /// A slot without queue pair.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        user_index: AtomicU32::new(0),
        expected: AtomicU32::new(NO_QUEUE),
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        requests: QueueCell::EMPTY,
        receives: QueueCell::EMPTY,
        shared: AtomicU32::new(0),
    };

    /// Returns true if the device has the queue pair.
    pub(crate) fn is_live(&self) -> bool {
        self.number.load(Ordering::Relaxed) != NO_QUEUE
    }

    /// Clears the shared receive queue if it is the given one.
    pub(super) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        if self.shared.load(Ordering::Relaxed) == encode_shared(Some(key)) {
            self.shared.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the latest generation of a queue pair, which may have ended.
pub(super) fn latest([even, odd]: &[QueuePairSlot; 2]) -> &QueuePairSlot {
    let name = even.user_index.load(Ordering::Acquire);
    // Both slots belong to the same queue pair.
    let next = next_user_index(
        name,
        queue_pair_index(odd.user_index.load(Ordering::Acquire)),
    );
    if next == odd.user_index.load(Ordering::Acquire) {
        odd
    } else {
        even
    }
}

/// Encodes an optional shared receive queue as `QueuePairSlot::shared` does.
pub(crate) fn encode_shared(key: Option<SharedReceiveQueueKey>) -> u32 {
    key.map_or(0, |key| (key.0 as u32).wrapping_add(1))
}

/// Bits of a user index: those that completions of any layout have.
const USER_INDEX: u32 = 0xFF_FFFF;

/// Low bits of a user index: the index of the generation's slot.
///
/// Their lowest bit selects the even or the odd slot of a queue pair. The higher bits count, so
/// that a completion of an earlier generation differs from one of this generation.
const GENERATION_BITS: u32 = 13;
/// Most queue pairs.
pub(crate) const QUEUE_PAIRS: usize = 1 << (GENERATION_BITS - 1);

/// Returns the user index after `last` at a queue pair index.
///
/// It is never 0. Its low bit alternates.
pub(crate) fn next_user_index(last: u32, index: usize) -> u32 {
    let index = index as u32 & (QUEUE_PAIRS as u32 - 1);
    let count = (last >> GENERATION_BITS) << 1 | last & 1;
    let count = count.wrapping_add(1) & (USER_INDEX >> (GENERATION_BITS - 1));
    // After the last count, which is odd, comes the first even one other than 0.
    let count = if count == 0 { 2 } else { count };
    count >> 1 << GENERATION_BITS | index << 1 | count & 1
}

/// Returns the slot index of a user index, among the slots of all queue pairs.
#[inline]
pub(crate) fn generation_index(user_index: u32) -> usize {
    (user_index & ((1 << GENERATION_BITS) - 1)) as usize
}

/// Returns the queue pair index of a user index.
fn queue_pair_index(user_index: u32) -> usize {
    generation_index(user_index) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_indices_distinguish_generations() {
        for index in [0, 5, QUEUE_PAIRS - 1] {
            let mut last = 0;
            for _ in 0..10_000 {
                let next = next_user_index(last, index);
                assert!(next != 0 && next <= USER_INDEX && next != last);
                assert_eq!(queue_pair_index(next), index);
                assert_ne!(next & 1, last & 1, "{last:#x}");
                last = next;
            }
        }
    }

    #[test]
    fn the_latest_generation_has_the_next_user_index() {
        let generations = [const { QueuePairSlot::EMPTY }; 4];
        let (pairs, _) = generations.as_chunks::<2>();
        let index = &pairs[1];
        let mut last = latest(index).user_index.load(Ordering::Relaxed);
        assert_eq!(last, 0);
        for _ in 0..10_000 {
            let next = next_user_index(last, 1);
            let generation = &generations[generation_index(next)];
            generation.user_index.store(next, Ordering::Relaxed);
            assert!(core::ptr::eq(latest(index), generation), "{next:#x}");
            last = next;
        }
    }
}
