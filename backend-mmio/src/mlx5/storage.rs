//! What the driver remembers: lent by the caller, never seen by the device.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dat_core::sync::Word64;

use super::defs::COUNTER;
use crate::fault::{DeviceFault, FaultCell};

/// Place for what is known of one posted descriptor: one for each block of a send queue and each place of a receive queue.
#[derive(Debug)]
pub struct RequestSlot {
    token: Word64,
    /// Blocks of a request, bytes of a receive.
    extent: AtomicU32,
    /// Of a place in a shared queue: where it is, and above that the place behind it.
    whereabouts: AtomicU32,
}

/// Where a place of a shared receive queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In the chain of those to be posted.
    Free = 0,
    /// With the device.
    Posted = 1,
    /// Completed, not yet in the chain.
    Returned = 2,
}

impl RequestSlot {
    /// Nothing posted.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        token: Word64::new(0),
        extent: AtomicU32::new(0),
        whereabouts: AtomicU32::new(Whereabouts::Free as u32),
    };

    #[inline(always)]
    pub(crate) fn put(&self, token: u64, extent: u32) {
        self.token.store(token);
        self.extent.store(extent, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn token(&self) -> u64 {
        self.token.load()
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> u32 {
        self.extent.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, whereabouts: Whereabouts) -> bool {
        self.whereabouts.load(Ordering::Acquire) & 3 == whereabouts as u32
    }

    /// In the chain, in front of another place.
    pub(crate) fn free_before(&self, next: u32) {
        let whereabouts = next << 2 | Whereabouts::Free as u32;
        self.whereabouts.store(whereabouts, Ordering::Relaxed);
    }

    /// The place behind this one, which is in the chain.
    pub(crate) fn next(&self) -> u32 {
        self.whereabouts.load(Ordering::Relaxed) >> 2
    }

    pub(crate) fn now(&self, whereabouts: Whereabouts) {
        self.whereabouts
            .store(whereabouts as u32, Ordering::Release);
    }
}

/// What poster and poller of a queue share. Indices run freely and are taken modulo the size.
///
/// `head` is written by the poster, `tail` by the poller. After a fault, when there may be several pollers, they agree by
/// the core's tokens: each completion counts once, however often it is told.
#[derive(Debug)]
pub(crate) struct QueueCell {
    /// Where its request slots begin.
    pub(crate) first: AtomicU32,
    /// One less than how many it has, a power of two.
    pub(crate) mask: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    /// The completion queue, or `NO_QUEUE`.
    pub(crate) completes_on: AtomicU32,
}

/// The number of no completion queue.
pub(crate) const NO_QUEUE: u32 = u32::MAX;

impl QueueCell {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    const EMPTY: Self = Self {
        first: AtomicU32::new(0),
        mask: AtomicU32::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        completes_on: AtomicU32::new(NO_QUEUE),
    };

    pub(crate) fn begin(&self, first: usize, places: u32, completes_on: Option<u16>) {
        self.first.store(first as u32, Ordering::Relaxed);
        self.mask.store(places.wrapping_sub(1), Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
        let queue = completes_on.map_or(NO_QUEUE, u32::from);
        self.completes_on.store(queue, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_head(&self, head: u32) {
        self.head.store(head, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_tail(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
    }

    /// Descriptors posted and not completed, at most.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head().wrapping_sub(self.tail())
    }

    /// The slot of an index.
    #[inline(always)]
    pub(crate) fn slot<'s>(&self, slots: &'s [RequestSlot], index: u32) -> Option<&'s RequestSlot> {
        let first = self.first.load(Ordering::Relaxed);
        let place = first.wrapping_add(index & self.mask.load(Ordering::Relaxed));
        slots.get(place as usize)
    }

    /// The slot of the oldest descriptor that is posted, if there is one.
    #[inline(always)]
    pub(crate) fn oldest<'s>(&self, slots: &'s [RequestSlot]) -> Option<(u32, &'s RequestSlot)> {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail == self.head() {
            return None;
        }
        Some((tail, self.slot(slots, tail)?))
    }
}

/// Place for one queue pair.
#[derive(Debug)]
pub struct QueuePairSlot {
    /// What it is called in completions, or what the last one was called that was here.
    pub(crate) user_index: AtomicU32,
    /// What the device calls it; 0 if there is none.
    pub(crate) number: AtomicU32,
    /// What the core calls it.
    pub(crate) token: Word64,
    pub(crate) requests: QueueCell,
    pub(crate) receives: QueueCell,
    /// The shared receive queue: one more than its place, or 0.
    pub(crate) shared: AtomicU32,
}

impl QueuePairSlot {
    /// No queue pair.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        user_index: AtomicU32::new(0),
        number: AtomicU32::new(0),
        token: Word64::new(0),
        requests: QueueCell::EMPTY,
        receives: QueueCell::EMPTY,
        shared: AtomicU32::new(0),
    };
}

/// Place for one completion queue.
#[derive(Debug)]
pub struct CompletionQueueSlot {
    /// What the device calls it; `NO_QUEUE` if there is none.
    pub(crate) number: AtomicU32,
    /// Completions of queue pairs that are gone which may still come, since the queue was made; and which came.
    pub(crate) owed: AtomicU32,
    pub(crate) forgiven: AtomicU32,
    /// Whether somebody waits to be told of the next completion.
    pub(crate) armed: AtomicU32,
    /// Armings that fired.
    pub(crate) serial: AtomicU32,
}

impl CompletionQueueSlot {
    /// A new queue, of which nothing is known.
    pub(crate) fn begin(&self, number: u32) {
        for word in [&self.owed, &self.forgiven, &self.armed, &self.serial] {
            word.store(0, Ordering::Relaxed);
        }
        self.number.store(number, Ordering::Relaxed);
    }

    /// A queue pair is gone of which so many completions may still come.
    pub(crate) fn owe(&self, completions: u32) {
        let owed = self.owed.load(Ordering::Relaxed);
        self.owed
            .store(owed.wrapping_add(completions), Ordering::Release);
    }

    /// Lets a completion of a queue pair that is gone pass, if there may be one.
    pub(crate) fn forgive(&self) -> bool {
        let forgiven = self.forgiven.load(Ordering::Relaxed);
        if forgiven == self.owed.load(Ordering::Acquire) {
            return false;
        }
        self.forgiven
            .store(forgiven.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// No completion queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        owed: AtomicU32::new(0),
        forgiven: AtomicU32::new(0),
        armed: AtomicU32::new(0),
        serial: AtomicU32::new(0),
    };
}

/// Place for one shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveSlot {
    /// What the device calls it; `NO_QUEUE` if there is none.
    pub(crate) number: AtomicU32,
    pub(crate) token: Word64,
    pub(crate) first: AtomicU32,
    /// How many places it has.
    pub(crate) places: AtomicU32,
}

impl SharedReceiveSlot {
    /// No shared receive queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        first: AtomicU32::new(0),
        places: AtomicU32::new(0),
    };
}

/// The bits of a user's index that are the place; those above are a generation, so that a completion of an earlier life of a
/// place is told from one of this.
const PLACE_BITS: u32 = 12;
/// Most queue pairs.
pub(crate) const QUEUE_PAIRS: usize = 1 << PLACE_BITS;

/// What a queue pair at a place is called next; never 0.
pub(crate) fn next_user_index(last: u32, place: usize) -> u32 {
    let place = place as u32 & ((1 << PLACE_BITS) - 1);
    let generation = (last >> PLACE_BITS).wrapping_add(1) & (COUNTER >> PLACE_BITS);
    generation.max(1) << PLACE_BITS | place
}

/// The place in a user's index.
#[inline(always)]
pub(crate) fn place_of(user_index: u32) -> usize {
    (user_index & ((1 << PLACE_BITS) - 1)) as usize
}

/// What all queues of a device see.
#[derive(Debug)]
pub struct State {
    fault: FaultCell,
    /// Whether the device was halted for it.
    halted: AtomicBool,
}

impl State {
    /// A device without fault.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
        }
    }

    /// What the device was caught at, if it was.
    pub fn fault(&self) -> Option<DeviceFault> {
        self.fault.get()
    }

    /// Whether the device is given up: then no register of it is written any more.
    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.fault.is_set()
    }

    /// Whether the device touches nothing any more, so that what is posted may be flushed.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// The device is halted.
    pub(crate) fn set_halted(&self) {
        self.halted.store(true, Ordering::Release);
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Storage for a device, as much of everything as it is to have at most.
#[derive(Debug)]
pub struct Storage<'s> {
    /// What is known of the device.
    pub state: &'s State,
    /// At most 4096.
    pub queue_pairs: &'s [QueuePairSlot],
    /// By the numbers of event dispatchers: as many as those.
    pub completion_queues: &'s [CompletionQueueSlot],
    /// Shared receive queues.
    pub shared_receive_queues: &'s [SharedReceiveSlot],
    /// For the blocks of all send queues and the places of all receive queues.
    pub requests: &'s [RequestSlot],
    /// One flag for every 16 of `requests`.
    pub requests_taken: &'s mut [bool],
    /// The keys of windows, one for each.
    pub windows: &'s [WindowSlot],
    /// One flag for every 256 bytes of memory that the device shares.
    pub memory_taken: &'s mut [bool],
}

/// Place for one window.
#[derive(Debug)]
pub struct WindowSlot {
    /// Its key as of the last bind that was posted; 0 if there is none.
    pub(crate) key: AtomicU32,
}

impl WindowSlot {
    /// No window.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        key: AtomicU32::new(0),
    };
}

/// The part of the storage that queues see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'s> {
    pub(crate) state: &'s State,
    pub(crate) queue_pairs: &'s [QueuePairSlot],
    pub(crate) completion_queues: &'s [CompletionQueueSlot],
    pub(crate) shared_receive_queues: &'s [SharedReceiveSlot],
    pub(crate) requests: &'s [RequestSlot],
    pub(crate) windows: &'s [WindowSlot],
}

impl Tables<'_> {
    /// Whether the driver has flushed completions of its own for a completion queue.
    pub(crate) fn has_flushed(&self, queue: u32) -> bool {
        let live = |pair: &&QueuePairSlot| pair.number.load(Ordering::Relaxed) != 0;
        self.queue_pairs.iter().filter(live).any(|pair| {
            [&pair.requests, &pair.receives].into_iter().any(|cell| {
                cell.completes_on.load(Ordering::Relaxed) == queue && cell.outstanding() != 0
            })
        })
    }

    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.state.is_faulty()
    }

    #[cold]
    pub(crate) fn fault(&self, fault: DeviceFault) {
        self.state.fault.set(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_indices_tell_lives_of_a_place_apart() {
        let first = next_user_index(0, 5);
        let second = next_user_index(first, 5);
        assert_ne!(first, second);
        assert_eq!([place_of(first), place_of(second)], [5, 5]);
        let mut last = 0;
        for _ in 0..10_000 {
            last = next_user_index(last, 0);
            assert!(last != 0 && last <= COUNTER);
        }
    }
}
