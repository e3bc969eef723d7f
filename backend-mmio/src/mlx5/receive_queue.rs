//! Receive queues of one queue pair: slots of one size, in order.

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::allocator::Record;
use crate::defs::mlx5::{Data, LONGEST_SEGMENT, doorbell};
use crate::platform::{DeviceUnit, DeviceWord, Hal};
use crate::ring::maintenance::before_write;
use crate::ring::{QueuePairSlot, RequestSlot};

/// The receive queue of a queue pair.
#[derive(Debug)]
pub struct MmioReceiveQueue<'s, H> {
    pub(crate) hal: H,
    pub(crate) ring: &'s [DeviceUnit],
    pub(crate) record: &'s Record,
    /// One record per slot.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) generation: &'s QueuePairSlot,
    /// Number of slots, a power of two, or 0.
    pub(crate) entries: u32,
    /// Units of a slot.
    pub(crate) units: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl<'s, H: Hal> MmioReceiveQueue<'s, H> {
    #[inline]
    fn has_room(&mut self) -> bool {
        self.head.wrapping_sub(self.tail) < self.entries || self.has_room_after_reload()
    }

    /// As `has_room`, after a reload of the tail.
    #[cold]
    fn has_room_after_reload(&mut self) -> bool {
        self.tail = self.generation.receives.tail();
        self.head.wrapping_sub(self.tail) < self.entries
    }

    /// Returns the index of the slot that is posted next.
    #[inline]
    fn slot_index(&self) -> u32 {
        self.head & self.entries.wrapping_sub(1)
    }

    /// Returns the index of the first unit of the slot that is posted next.
    #[inline]
    fn first_unit(&self) -> u32 {
        self.slot_index().wrapping_mul(self.units)
    }

    /// Records the receive and advances the head.
    #[inline]
    fn publish(&mut self, (slot_index, head): (u32, u32), token: u64, length: u32) {
        if let Some(slot) = self.slots.get(slot_index as usize) {
            slot.put(token, length);
        }
        let head = head.wrapping_add(1);
        self.head = head;
        self.generation.receives.set_head(head);
    }

    /// Copies the receives of another queue, the oldest at `tail`; the device no longer uses it.
    pub(crate) fn take_over(&mut self, other: &Self, tail: u32) -> Result<(), Rejected> {
        let mut index = tail;
        while index != other.head {
            let slot_index = index & other.entries.wrapping_sub(1);
            let slot = other.slots.get(slot_index as usize);
            let token = slot.ok_or(Rejected)?.token();
            let first = (index & other.entries.wrapping_sub(1)).wrapping_mul(other.units);
            let units = (first..).take(other.units as usize);
            let segments = units.filter_map(|unit| {
                let unit = other.ring.get(unit as usize)?;
                Some(Data::decode(unit.each_ref().map(DeviceWord::load)))
            });
            let room = self.units;
            let request = ReceiveRequest { token };
            let mut slot = self.reserve(&request, 0).ok_or(Rejected)?;
            let mut length = 0_u32;
            for segment in segments.take_while(|segment| *segment != Data::END) {
                if slot.segments >= room {
                    return Err(Rejected);
                }
                length = length.saturating_add(segment.length);
                slot.segment(Segment {
                    address: segment.address,
                    length: segment.length,
                    key: segment.key,
                });
            }
            slot.commit(length)?;
            index = index.wrapping_add(1);
        }
        self.ring_doorbell();
        Ok(())
    }

    #[inline]
    fn ring_doorbell(&mut self) {
        H::to_device();
        self.record[doorbell::RECEIVE].store(self.head & 0xFFFF);
    }
}

/// A reserved slot of a receive queue.
#[derive(Debug)]
pub struct MmioReceiveSlot<'a, 's, H> {
    queue: &'a mut MmioReceiveQueue<'s, H>,
    token: u64,
    segments: u32,
    /// The bitwise or of all lengths.
    lengths: u32,
}

impl<H: Hal> MmioReceiveSlot<'_, '_, H> {
    /// Writes the unit after the last segment, if the slot has room for it.
    #[inline]
    fn put(&self, data: Data) {
        let index = self.queue.first_unit().wrapping_add(self.segments);
        if self.segments < self.queue.units
            && let Some(unit) = self.queue.ring.get(index as usize)
        {
            unit.put(data.encode());
        }
    }
}

impl<H: Hal> WorkSlot for MmioReceiveSlot<'_, '_, H> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        if !self.queue.hal.is_coherent() {
            let slot = self.queue.slots.get(self.queue.slot_index() as usize);
            before_write(&self.queue.hal, slot, self.segments, segment);
        }
        self.put(data(segment));
        self.segments = self.segments.wrapping_add(1);
        self.lengths |= segment.length;
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        if self.lengths > LONGEST_SEGMENT {
            return Err(Rejected);
        }
        self.put(Data::END);
        let queue = self.queue;
        queue.publish((queue.slot_index(), queue.head), self.token, length);
        Ok(())
    }
}

impl<'s, H: Hal> WorkQueue for MmioReceiveQueue<'s, H> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = MmioReceiveSlot<'a, 's, H>
    where
        Self: 'a;

    #[inline]
    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        _segments: usize,
    ) -> Option<MmioReceiveSlot<'_, 's, H>> {
        if !self.has_room() {
            return None;
        }
        if !self.hal.is_coherent()
            && let Some(slot) = self.slots.get(self.slot_index() as usize)
        {
            slot.forget_ranges();
        }
        Some(MmioReceiveSlot {
            queue: self,
            token: request.token,
            segments: 0,
            lengths: 0,
        })
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.ring_doorbell();
        Ok(())
    }
}

#[inline]
pub(crate) fn data(segment: Segment) -> Data {
    Data {
        length: segment.length,
        key: segment.key,
        address: segment.address,
    }
}
