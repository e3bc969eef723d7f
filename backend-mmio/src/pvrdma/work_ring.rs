//! Rings that the driver fills: descriptors of one size and a state page.

use dat_core::backend::Segment;

use super::completion_queue::is_forgotten;
use super::pages::View;
use crate::defs::pvrdma::{SegmentEntry, Words, doorbell};
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::before_write;
use crate::ring::{DeviceState, QueueCell, QueuePairSlot, RequestSlot};

/// The driver's side of a ring of requests or receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'s> {
    /// The state page, and the offset of the producer index in it.
    pub(crate) state: View<'s>,
    pub(crate) producer: u32,
    /// The descriptors.
    pub(crate) descriptors: View<'s>,
    /// Bytes of a descriptor, and of its header before the segments.
    pub(crate) stride: u32,
    pub(crate) header: u32,
    /// Number of descriptors, a power of two; `head` counts completed ones and wraps at 2^32.
    pub(crate) entries: u32,
    pub(crate) head: u32,
}

impl Ring<'_> {
    /// Returns the offset of the next descriptor.
    #[inline]
    fn next(&self) -> u32 {
        (self.head & self.entries.wrapping_sub(1)).wrapping_mul(self.stride)
    }

    /// Writes a segment of the next descriptor; ignores it if the descriptor has no room.
    #[inline]
    pub(crate) fn put_segment(&self, segment_index: u32, segment: Segment) {
        let offset = self.header.saturating_add(segment_index.saturating_mul(16));
        if offset.saturating_add(16) > self.stride {
            return;
        }
        let put_segment = SegmentEntry {
            address: segment.address,
            length: segment.length,
            key: segment.key,
        };
        self.descriptors
            .put(self.next().wrapping_add(offset), &put_segment);
    }

    /// Writes the header of the next descriptor, which completes it.
    #[inline]
    pub(crate) fn put_header(&mut self, header: &impl Words) {
        self.descriptors.put(self.next(), header);
        self.head = self.head.wrapping_add(1);
    }

    /// Makes all complete descriptors visible to the device.
    ///
    /// The device's indices wrap at twice the size.
    #[inline]
    pub(crate) fn publish<H: Hal>(&self) {
        H::to_device();
        let twice = self.entries.wrapping_mul(2).wrapping_sub(1);
        self.state.store(self.producer, self.head & twice);
        H::to_register();
    }
}

/// The driver's records of the descriptors of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted<'s> {
    pub(crate) cell: &'s QueueCell,
    /// One slot per descriptor.
    pub(crate) slots: &'s [RequestSlot],
    /// Cached index of the oldest pending descriptor; reloaded when the ring looks full.
    pub(crate) tail: u32,
}

impl Posted<'_> {
    /// Returns true if a ring of `entries` descriptors has room after `head` posted ones.
    #[inline]
    pub(crate) fn has_room(&mut self, head: u32, entries: u32) -> bool {
        if head.wrapping_sub(self.tail) < entries {
            return true;
        }
        self.tail = self.cell.tail();
        head.wrapping_sub(self.tail) < entries
    }

    /// Records the newest descriptor, at `index`.
    #[inline]
    pub(crate) fn record(&self, index: u32, entries: u32, token: u64, length: u32) {
        let slot_index = index & entries.wrapping_sub(1);
        if let Some(slot) = self.slots.get(slot_index as usize) {
            slot.put(token, length);
        }
        self.cell.set_head(index.wrapping_add(1));
    }
}

/// A send or receive queue of a queue pair, as its poster accesses it.
#[derive(Debug)]
pub(crate) struct WorkRing<'s, H, W> {
    pub(crate) hal: H,
    pub(crate) doorbells: W,
    pub(crate) ring: Ring<'s>,
    pub(crate) posted: Posted<'s>,
    pub(crate) generation: &'s QueuePairSlot,
    pub(crate) state: &'s DeviceState,
    pub(crate) user_index: u32,
    pub(crate) number: u32,
    pub(crate) segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkRing<'_, H, W> {
    /// Returns true if a descriptor of `segments` segments has room.
    #[inline]
    pub(crate) fn has_room(&mut self, segments: usize) -> bool {
        let Ring { head, entries, .. } = self.ring;
        segments <= self.segments as usize && self.posted.has_room(head, entries)
    }

    /// Returns the record of the next descriptor.
    pub(crate) fn next_slot(&self) -> Option<&RequestSlot> {
        let slot_index = self.ring.head & self.ring.entries.wrapping_sub(1);
        self.posted.slots.get(slot_index as usize)
    }

    /// Maintains the caches for a segment of the next descriptor, which the device may write.
    #[cold]
    pub(crate) fn before_write(&self, segment_index: u32, segment: Segment) {
        before_write(&self.hal, self.next_slot(), segment_index, segment);
    }

    /// Forgets the buffers of a descriptor that was not posted.
    #[inline]
    pub(crate) fn forget_ranges(&self) {
        if !self.hal.is_coherent()
            && let Some(slot) = self.next_slot()
        {
            slot.forget_ranges();
        }
    }

    /// Returns the name of the next descriptor in its completion.
    #[inline]
    pub(crate) fn next_name(&self) -> u64 {
        name(self.user_index, self.ring.head)
    }

    /// Writes the header of the next descriptor and records it.
    #[inline]
    pub(crate) fn post(&mut self, header: &impl Words, token: u64, length: u32) {
        let (index, entries) = (self.ring.head, self.ring.entries);
        self.ring.put_header(header);
        self.posted.record(index, entries, token, length);
    }

    /// Publishes the posted descriptors and rings the doorbell, if the device still has them.
    #[inline]
    pub(crate) fn ring_doorbell(&self, which: u32) {
        if !self.state.is_faulty() && !is_forgotten(self.generation) {
            self.ring.publish::<H>();
            self.doorbells
                .write(doorbell::QUEUE_PAIR, self.number | which);
        }
    }
}

/// Returns the name of a descriptor: user index of the queue pair, and index.
#[inline]
pub(crate) fn name(user_index: u32, index: u32) -> u64 {
    u64::from(user_index) << 32 | u64::from(index)
}

/// Marks names of descriptors of shared receive queues.
pub(crate) const SHARED: u64 = 1 << 63;

/// Returns the name of a buffer of a shared receive queue.
///
/// It consists of the low 15 bits of the slot's generation, the index of the queue, and the index
/// of the buffer.
pub(crate) const fn shared_name(generation: u32, queue: u16, buffer: u32) -> u64 {
    SHARED | (generation as u64 & 0x7FFF) << 48 | (queue as u64) << 32 | buffer as u64
}
