//! Shared receive queues: places in a chain, which the device follows; they come back in any order.

use core::sync::atomic::Ordering;

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::allocator::{Allocation, Record};
use super::receive_queue::data;
use crate::defs::mlx5::{Data, LONGEST_SEGMENT, NextReceive, doorbell};
use crate::platform::{DeviceUnit, Hal};
use crate::ring::{Location, RequestSlot, SharedReceiveSlot};

/// A shared receive queue.
///
/// The chain always has one place more than may be posted: the last one, which the device does not reach because what comes
/// after it is not known yet.
#[derive(Debug)]
pub struct MmioSharedReceiveQueue<'s, H> {
    pub(crate) hal: core::marker::PhantomData<fn() -> H>,
    pub(crate) allocation: Allocation,
    pub(crate) ring: &'s [DeviceUnit],
    pub(crate) record: &'s Record,
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) shared: &'s SharedReceiveSlot,
    /// How many places there are, a power of two.
    pub(crate) entries: u32,
    /// Units of a place, the one that names the next included.
    pub(crate) units: u32,
    /// The first and the last of the free places in the chain.
    pub(crate) next: u32,
    pub(crate) last: u32,
    /// Buffers posted since the beginning.
    pub(crate) posted: u32,
}

impl<'s, H: Hal> MmioSharedReceiveQueue<'s, H> {
    fn slot(&self, index: u32) -> Option<&'s RequestSlot> {
        let first = self.shared.first.load(Ordering::Relaxed);
        self.slots
            .get(first.wrapping_add(index & self.entries.wrapping_sub(1)) as usize)
    }

    /// The unit in which a place names the next one.
    fn link(&self, index: u32) -> Option<&DeviceUnit> {
        self.unit(index, 0)
    }

    fn unit(&self, index: u32, unit: u32) -> Option<&DeviceUnit> {
        let first = index.wrapping_mul(self.units);
        self.ring.get(first.wrapping_add(unit) as usize)
    }

    /// Writes a segment into a place.
    fn put(&self, index: u32, unit: u32, data: Data) {
        if let Some(unit) = self.unit(index, unit) {
            unit.put(data.encode());
        }
    }

    /// Puts the chain into its first order: all places, one after the other.
    pub(crate) fn begin(&mut self) {
        for index in 0..self.entries {
            self.chain(index, index.wrapping_add(1) & self.entries.wrapping_sub(1));
        }
        self.next = 0;
        self.last = self.entries.wrapping_sub(1);
    }

    /// Puts a place in front of another one. The device is told, and not believed if it tells.
    fn chain(&self, index: u32, next: u32) {
        if let Some(slot) = self.slot(index) {
            slot.free_with_next(next);
        }
        if let Some(unit) = self.link(index) {
            unit.put(NextReceive { next: next as u16 }.encode());
        }
    }

    /// Puts the places that came back at the end of the chain.
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

/// A reserved place of a shared receive queue.
#[derive(Debug)]
pub struct MmioSharedReceiveSlot<'a, 's, H> {
    queue: &'a mut MmioSharedReceiveQueue<'s, H>,
    token: u64,
    segments: u32,
    /// All lengths laid over each other: a bit is in it that is in one of them.
    lengths: u32,
}

impl<H: Hal> WorkSlot for MmioSharedReceiveSlot<'_, '_, H> {
    fn segment(&mut self, segment: Segment) {
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
