//! Shared receive queues: a chain of slots that the device follows and returns in any order.

use core::sync::atomic::Ordering;

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::allocator::{Allocation, Record};
use super::receive_queue::data;
use crate::defs::mlx5::{Data, LONGEST_SEGMENT, NextReceive, doorbell};
use crate::platform::{DeviceUnit, Hal};
use crate::ring::maintenance::{after_write, before_write};
use crate::ring::{Location, RequestSlot, SharedReceiveSlot};

/// A shared receive queue.
///
/// The chain has one slot more than may be posted: the device does not reach the last one, whose
/// successor is not known yet.
#[derive(Debug)]
pub struct MmioSharedReceiveQueue<'s, H> {
    pub(crate) hal: H,
    pub(crate) allocation: Allocation,
    pub(crate) ring: &'s [DeviceUnit],
    pub(crate) record: &'s Record,
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) shared: &'s SharedReceiveSlot,
    /// Number of slots, a power of two.
    pub(crate) entries: u32,
    /// Units of a slot, including the one that links to the next slot.
    pub(crate) units: u32,
    /// Indices of the first and the last free slot in the chain.
    pub(crate) next: u32,
    pub(crate) last: u32,
    /// Buffers posted since creation.
    pub(crate) posted: u32,
}

impl<'s, H: Hal> MmioSharedReceiveQueue<'s, H> {
    fn slot(&self, index: u32) -> Option<&'s RequestSlot> {
        let first = self.shared.first.load(Ordering::Relaxed);
        self.slots
            .get(first.wrapping_add(index & self.entries.wrapping_sub(1)) as usize)
    }

    /// Returns the unit that links a slot to the next one.
    fn link(&self, index: u32) -> Option<&DeviceUnit> {
        self.unit(index, 0)
    }

    fn unit(&self, index: u32, unit: u32) -> Option<&DeviceUnit> {
        let first = index.wrapping_mul(self.units);
        self.ring.get(first.wrapping_add(unit) as usize)
    }

    /// Writes a segment into a slot.
    fn put(&self, index: u32, unit: u32, data: Data) {
        if let Some(unit) = self.unit(index, unit) {
            unit.put(data.encode());
        }
    }

    /// Links all slots in ascending order.
    pub(crate) fn begin(&mut self) {
        for index in 0..self.entries {
            self.chain(index, index.wrapping_add(1) & self.entries.wrapping_sub(1));
        }
        self.next = 0;
        self.last = self.entries.wrapping_sub(1);
    }

    /// Links a slot to the next one, in the driver's record and in the device's memory.
    ///
    /// The driver reads only its own record.
    fn chain(&self, index: u32, next: u32) {
        if let Some(slot) = self.slot(index) {
            slot.free_with_next(next);
        }
        if let Some(unit) = self.link(index) {
            unit.put(NextReceive { next: next as u16 }.encode());
        }
    }

    /// Appends the returned slots to the chain.
    fn reclaim_returned(&mut self) {
        for index in 0..self.entries {
            let returned = self
                .slot(index)
                .is_some_and(|slot| slot.is_at(Location::Returned));
            if returned {
                if let Some(slot) = self.slot(index) {
                    slot.set_location(Location::Free);
                }
                self.chain(self.last, index);
                self.last = index;
            }
        }
    }

    /// Maintains the caches for the posted buffers, after the device has destroyed the queue.
    pub(crate) fn end(&self) {
        if self.hal.is_coherent() {
            return;
        }
        for slot in (0..self.entries).filter_map(|index| self.slot(index)) {
            after_write(&self.hal, slot);
        }
    }

    fn publish(&mut self, token: u64, segments: u32, length: u32) {
        let index = self.next;
        let used = segments.wrapping_add(1);
        if used < self.units {
            self.put(index, used, Data::END);
        }
        if let Some(slot) = self.slot(index) {
            let next = slot.next();
            slot.put(token, length);
            slot.set_location(Location::Posted);
            self.next = next;
        }
        self.posted = self.posted.wrapping_add(1);
    }
}

/// A reserved slot of a shared receive queue.
#[derive(Debug)]
pub struct MmioSharedReceiveSlot<'a, 's, H> {
    queue: &'a mut MmioSharedReceiveQueue<'s, H>,
    token: u64,
    segments: u32,
    /// The bitwise or of all lengths.
    lengths: u32,
}

impl<H: Hal> WorkSlot for MmioSharedReceiveSlot<'_, '_, H> {
    fn segment(&mut self, segment: Segment) {
        if !self.queue.hal.is_coherent() {
            let slot = self.queue.slot(self.queue.next);
            before_write(&self.queue.hal, slot, self.segments, segment);
        }
        self.segments = self.segments.wrapping_add(1);
        if self.segments < self.queue.units {
            self.queue
                .put(self.queue.next, self.segments, data(segment));
        }
        self.lengths |= segment.length;
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        if self.lengths > LONGEST_SEGMENT {
            return Err(Rejected);
        }
        self.queue.publish(self.token, self.segments, length);
        Ok(())
    }
}

impl<'s, H: Hal> WorkQueue for MmioSharedReceiveQueue<'s, H> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = MmioSharedReceiveSlot<'a, 's, H>
    where
        Self: 'a;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        _segments: usize,
    ) -> Option<MmioSharedReceiveSlot<'_, 's, H>> {
        if self.next == self.last {
            self.reclaim_returned();
            if self.next == self.last {
                return None;
            }
        }
        if let Some(slot) = self.slot(self.next)
            && !self.hal.is_coherent()
        {
            slot.forget_ranges();
        }
        Some(MmioSharedReceiveSlot {
            queue: self,
            token: request.token,
            segments: 0,
            lengths: 0,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        H::to_device();
        self.record[doorbell::RECEIVE].store(self.posted & 0xFFFF);
        Ok(())
    }
}
