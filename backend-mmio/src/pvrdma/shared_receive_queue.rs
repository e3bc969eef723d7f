//! Shared receive queues: a ring whose buffers complete in any order.

use core::sync::atomic::Ordering;

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::pages::PageRun;
use super::slot_allocator::SlotRun;
use super::work_ring::Ring;
use crate::defs::pvrdma::{Receive, doorbell};
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::before_write;
use crate::ring::{DeviceState, Location, RequestSlot, SharedReceiveSlot};

/// A shared receive queue.
///
/// The device takes buffers in ring order and completes them in any order. So the driver names each
/// buffer by a slot of its own. There are as many slots as ring entries: if a slot is free, the
/// ring has room.
#[derive(Debug)]
pub struct PvrdmaSharedReceiveQueue<'s, H, W> {
    pub(crate) hal: H,
    pub(crate) doorbells: W,
    pub(crate) page_run: PageRun,
    pub(crate) slot_run: SlotRun,
    pub(crate) ring: Ring<'s>,
    /// One slot per ring entry.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) shared: &'s SharedReceiveSlot,
    /// Name of the buffer of the first slot.
    pub(crate) name: u64,
    pub(crate) state: &'s DeviceState,
    pub(crate) segments: u32,
    /// Index at which the search for a free slot starts.
    pub(crate) next: u32,
}

impl<H, W> PvrdmaSharedReceiveQueue<'_, H, W> {
    fn free_index(&self) -> Option<u32> {
        let mask = self.ring.entries.wrapping_sub(1);
        let indices = (0..self.ring.entries).map(|step| self.next.wrapping_add(step) & mask);
        let mut free = indices.filter(|index| {
            let slot = self.slots.get(*index as usize);
            slot.is_some_and(|slot| !slot.is_at(Location::Posted))
        });
        free.next()
    }
}

/// A reserved slot of a shared receive queue.
#[derive(Debug)]
pub struct PvrdmaSharedReceiveSlot<'a, 's, H, W> {
    queue: &'a mut PvrdmaSharedReceiveQueue<'s, H, W>,
    token: u64,
    index: u32,
    segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkSlot for PvrdmaSharedReceiveSlot<'_, '_, H, W> {
    fn segment(&mut self, segment: Segment) {
        let queue = &*self.queue;
        if !queue.hal.is_coherent() {
            let slot = queue.slots.get(self.index as usize);
            before_write(&queue.hal, slot, self.segments, segment);
        }
        self.queue.ring.put_segment(self.segments, segment);
        self.segments = self.segments.wrapping_add(1);
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        let Self {
            queue,
            token,
            index,
            segments,
        } = self;
        let slot = queue.slots.get(index as usize).ok_or(Rejected)?;
        slot.put(token, length);
        slot.set_location(Location::Posted);
        queue.ring.put_header(&Receive {
            token: queue.name | u64::from(index),
            segments,
            length,
        });
        queue.next = index.wrapping_add(1);
        Ok(())
    }
}

impl<'s, H: Hal, W: RegisterWords> WorkQueue for PvrdmaSharedReceiveQueue<'s, H, W> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = PvrdmaSharedReceiveSlot<'a, 's, H, W>
    where
        Self: 'a;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<PvrdmaSharedReceiveSlot<'_, 's, H, W>> {
        if segments > self.segments as usize {
            return None;
        }
        let index = self.free_index()?;
        if let Some(slot) = self.slots.get(index as usize)
            && !self.hal.is_coherent()
        {
            slot.forget_ranges();
        }
        Some(PvrdmaSharedReceiveSlot {
            queue: self,
            token: request.token,
            index,
            segments: 0,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        if !self.state.is_faulty() {
            self.ring.publish::<H>();
            let number = self.shared.number.load(Ordering::Relaxed);
            let bell = number | doorbell::SHARED_RECEIVE;
            self.doorbells.write(doorbell::SHARED_RECEIVE_QUEUE, bell);
        }
        Ok(())
    }
}
