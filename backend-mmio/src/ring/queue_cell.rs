//! State that the poster and the poller of a queue share.

use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::request_slot::RequestSlot;

/// State that the poster and the poller of a queue share.
///
/// Indices run freely and are taken modulo the size. The poster writes `head`, the poller `tail`.
/// After a fault several pollers may run. The core's tokens then make each completion count once,
/// however often it is reported.
#[derive(Debug)]
pub(crate) struct QueueCell {
    /// Index of the first request slot.
    first: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    /// Number of slots minus 1; the number is a power of two, at most 2^16.
    mask: AtomicU16,
    /// The completion queue, or `NO_COMPLETION_QUEUE`.
    completes_on: AtomicU16,
}

/// Number of no completion queue of the core.
pub(crate) const NO_COMPLETION_QUEUE: u16 = u16::MAX;

/// Number of no queue of the device; device numbers have 24 bits.
pub(crate) const NO_QUEUE: u32 = u32::MAX;

impl QueueCell {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub(super) const EMPTY: Self = Self {
        first: AtomicU32::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        mask: AtomicU16::new(0),
        completes_on: AtomicU16::new(NO_COMPLETION_QUEUE),
    };

    pub(crate) fn begin(&self, first: usize, entries: u32, completes_on: Option<u16>) {
        self.first.store(first as u32, Ordering::Relaxed);
        let mask = entries.wrapping_sub(1) as u16;
        self.mask.store(mask, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
        let queue = completes_on.unwrap_or(NO_COMPLETION_QUEUE);
        self.completes_on.store(queue, Ordering::Relaxed);
    }

    /// Returns true if the queue completes on the given completion queue.
    #[inline]
    pub(crate) fn is_of(&self, queue: u16) -> bool {
        self.completes_on.load(Ordering::Relaxed) == queue
    }

    /// Returns the completion queue, or `NO_COMPLETION_QUEUE`.
    pub(crate) fn completes_on(&self) -> u16 {
        self.completes_on.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_head(&self, head: u32) {
        self.head.store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_tail(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
    }

    /// Returns an upper bound of the descriptors that are posted and not completed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head().wrapping_sub(self.tail())
    }

    /// Returns the slot of an index.
    #[inline]
    pub(crate) fn slot<'s>(&self, slots: &'s [RequestSlot], index: u32) -> Option<&'s RequestSlot> {
        let first = self.first.load(Ordering::Relaxed);
        let mask = u32::from(self.mask.load(Ordering::Relaxed));
        let slot_index = first.wrapping_add(index & mask);
        slots.get(slot_index as usize)
    }

    /// Returns the index and the slot of the oldest posted descriptor, if any.
    #[inline]
    pub(crate) fn oldest<'s>(&self, slots: &'s [RequestSlot]) -> Option<(u32, &'s RequestSlot)> {
        let index = self.oldest_index()?;
        Some((index, self.slot(slots, index)?))
    }

    /// Returns the index of the oldest posted descriptor, if any.
    #[inline]
    pub(crate) fn oldest_index(&self) -> Option<u32> {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail != self.head()).then_some(tail)
    }
}
