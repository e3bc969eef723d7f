//! Slots for completion queues.

use core::sync::atomic::{AtomicU32, Ordering};

use super::queue_cell::NO_QUEUE;

/// Slot for one completion queue.
#[derive(Debug)]
pub struct CompletionQueueSlot {
    /// Device number; `NO_QUEUE` if the slot is free.
    pub(crate) number: AtomicU32,
    /// Completions of destroyed queue pairs that may still arrive.
    ///
    /// Counted since the queue was created; `stale_taken` counts those that arrived.
    pub(crate) stale_expected: AtomicU32,
    pub(crate) stale_taken: AtomicU32,
    /// Nonzero if a consumer waits for the next completion.
    pub(crate) armed: AtomicU32,
    /// Number of armings that fired.
    pub(crate) serial: AtomicU32,
}

impl CompletionQueueSlot {
    /// Starts a new queue.
    pub(crate) fn begin(&self, number: u32) {
        for word in [
            &self.stale_expected,
            &self.stale_taken,
            &self.armed,
            &self.serial,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.number.store(number, Ordering::Relaxed);
    }

    /// Adds completions that may still arrive from a destroyed queue pair.
    pub(crate) fn expect_stale(&self, completions: u32) {
        let stale_expected = self.stale_expected.load(Ordering::Relaxed);
        self.stale_expected
            .store(stale_expected.wrapping_add(completions), Ordering::Release);
    }

    /// Accepts a completion of a destroyed queue pair; returns false if none is pending.
    pub(crate) fn take_stale(&self) -> bool {
        let stale_taken = self.stale_taken.load(Ordering::Relaxed);
        if stale_taken == self.stale_expected.load(Ordering::Acquire) {
            return false;
        }
        self.stale_taken
            .store(stale_taken.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// A slot without completion queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        stale_expected: AtomicU32::new(0),
        stale_taken: AtomicU32::new(0),
        armed: AtomicU32::new(0),
        serial: AtomicU32::new(0),
    };
}
