//! Receive queues of one queue pair: places of one size, in order.

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::defs::{Data, LONGEST_PIECE, doorbell};
use super::storage::{QueueCell, QueuePairSlot, RequestSlot};
use crate::hal::{DeviceWord, Hal, Unit};

/// The receive queue of a queue pair.
#[derive(Debug)]
pub struct MmioReceiveQueue<'s, H> {
    pub(crate) hal: core::marker::PhantomData<fn() -> H>,
    pub(crate) ring: &'s [Unit],
    pub(crate) record: &'s [DeviceWord],
    /// One for each place.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) pair: &'s QueuePairSlot,
    /// How many places there are.
    pub(crate) places: u32,
    /// Units of a place.
    pub(crate) units: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

/// Writes a segment to a place of a ring.
#[inline(always)]
pub(crate) fn write_data(ring: &[Unit], index: u32, data: Data) {
    if let Some(unit) = ring.get(index as usize) {
        for (word, value) in unit.iter().zip(data.encode()) {
            word.store(value);
        }
    }
}

impl<'s, H: Hal> MmioReceiveQueue<'s, H> {
    pub(crate) fn cell(&self) -> &'s QueueCell {
        &self.pair.receives
    }

    #[inline(always)]
    fn first_unit(&self) -> u32 {
        (self.head & self.places.wrapping_sub(1)).wrapping_mul(self.units)
    }

    #[inline(always)]
    fn publish(&mut self, token: u64, segments: u32, length: u32) {
        if segments < self.units {
            let end = self.first_unit().wrapping_add(segments);
            write_data(self.ring, end, Data::END);
        }
        let place = self.head & self.places.wrapping_sub(1);
        if let Some(slot) = self.slots.get(place as usize) {
            slot.put(token, length);
        }
        self.head = self.head.wrapping_add(1);
        self.cell().set_head(self.head);
    }

    /// Takes over the receives that were posted on another queue, the oldest at `tail`, which the device does not use any more.
    pub(crate) fn take_over(&mut self, other: &Self, tail: u32) -> Result<(), Rejected> {
        let mut index = tail;
        while index != other.head {
            let place = index & other.places.wrapping_sub(1);
            let slot = other.slots.get(place as usize);
            let token = slot.ok_or(Rejected)?.token();
            let first = (index & other.places.wrapping_sub(1)).wrapping_mul(other.units);
            let units = (first..).take(other.units as usize);
            let pieces = units.filter_map(|unit| {
                let unit = other.ring.get(unit as usize)?;
                Some(Data::decode(unit.each_ref().map(DeviceWord::load)))
            });
            let room = self.units;
            let mut place = self.reserve(0).ok_or(Rejected)?;
            for piece in pieces.take_while(|piece| *piece != Data::END) {
                if place.segments >= room {
                    return Err(Rejected);
                }
                place.segment(Segment {
                    address: piece.address,
                    length: piece.length,
                    key: piece.key,
                });
            }
            place.commit(&ReceiveRequest { token })?;
            index = index.wrapping_add(1);
        }
        self.tell_device();
        Ok(())
    }

    #[inline(always)]
    fn tell_device(&mut self) {
        H::to_device();
        if let Some(word) = self.record.get(doorbell::RECEIVE) {
            word.store(self.head & 0xFFFF);
        }
    }
}

/// A reserved place of a receive queue.
#[derive(Debug)]
pub struct MmioReceiveSlot<'a, 's, H> {
    queue: &'a mut MmioReceiveQueue<'s, H>,
    segments: u32,
    length: u32,
    /// All lengths laid over each other: a bit is in it that is in one of them.
    lengths: u32,
}

impl<H: Hal> WorkSlot for MmioReceiveSlot<'_, '_, H> {
    type Request = ReceiveRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        let index = self.queue.first_unit().wrapping_add(self.segments);
        let data = Data {
            length: segment.length,
            key: segment.key,
            address: segment.address,
        };
        if self.segments < self.queue.units {
            write_data(self.queue.ring, index, data);
        }
        self.segments = self.segments.wrapping_add(1);
        self.length = self.length.saturating_add(segment.length);
        self.lengths |= segment.length;
    }

    #[inline(always)]
    fn commit(self, request: &ReceiveRequest) -> Result<(), Rejected> {
        if self.lengths > LONGEST_PIECE {
            return Err(Rejected);
        }
        self.queue
            .publish(request.token, self.segments, self.length);
        Ok(())
    }
}

impl<'s, H: Hal> WorkQueue for MmioReceiveQueue<'s, H> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = MmioReceiveSlot<'a, 's, H>
    where
        Self: 'a;

    #[inline(always)]
    fn reserve(&mut self, _segments: usize) -> Option<MmioReceiveSlot<'_, 's, H>> {
        if self.head.wrapping_sub(self.tail) >= self.places {
            self.tail = self.cell().tail();
            if self.head.wrapping_sub(self.tail) >= self.places {
                return None;
            }
        }
        Some(MmioReceiveSlot {
            queue: self,
            segments: 0,
            length: 0,
            lengths: 0,
        })
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        self.tell_device();
        Ok(())
    }
}
