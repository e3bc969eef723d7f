//! Shared receive queues: a ring like any other, whose buffers come back in any order.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use dat_core::backend::{ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot};

use super::defs::{Receive, doorbell};
use super::pages::Held;
use super::ring::Ring;
use super::slots::HeldSlots;
use crate::hal::Hal;
use crate::mlx5::storage::{RequestSlot, SharedReceiveSlot, State, Whereabouts};
use crate::words::RegisterWords;

/// A shared receive queue.
///
/// The device takes buffers in the order of the ring, and lets them complete in any; so a buffer goes by a place of the driver's
/// own. There are as many places as the ring has, so that where a place is free the ring has room.
#[derive(Debug)]
pub struct PvrdmaSharedReceiveQueue<'s, H, W> {
    pub(crate) hal: PhantomData<fn() -> H>,
    pub(crate) doorbells: W,
    pub(crate) held: Held,
    pub(crate) held_slots: HeldSlots,
    pub(crate) ring: Ring<'s>,
    /// One for each place.
    pub(crate) slots: &'s [RequestSlot],
    pub(crate) shared: &'s SharedReceiveSlot,
    /// What the buffer at the first place is called.
    pub(crate) name: u64,
    pub(crate) state: &'s State,
    pub(crate) segments: u32,
    /// Where the search for a free place begins.
    pub(crate) next: u32,
}

impl<H, W> PvrdmaSharedReceiveQueue<'_, H, W> {
    fn free_place(&self) -> Option<u32> {
        let mask = self.ring.entries.wrapping_sub(1);
        let places = (0..self.ring.entries).map(|step| self.next.wrapping_add(step) & mask);
        let mut free = places.filter(|place| {
            let slot = self.slots.get(*place as usize);
            slot.is_some_and(|slot| !slot.is(Whereabouts::Posted))
        });
        free.next()
    }
}

/// A reserved place of a shared receive queue.
#[derive(Debug)]
pub struct PvrdmaSharedReceivePlace<'a, 's, H, W> {
    queue: &'a mut PvrdmaSharedReceiveQueue<'s, H, W>,
    token: u64,
    place: u32,
    segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkSlot for PvrdmaSharedReceivePlace<'_, '_, H, W> {
    fn segment(&mut self, segment: Segment) {
        self.queue.ring.piece(self.segments, segment);
        self.segments = self.segments.wrapping_add(1);
    }

    fn commit(self, length: u32) -> Result<(), Rejected> {
        let Self {
            queue,
            token,
            place,
            segments,
        } = self;
        let slot = queue.slots.get(place as usize).ok_or(Rejected)?;
        slot.put(token, length);
        slot.now(Whereabouts::Posted);
        queue.ring.complete(&Receive {
            token: queue.name | u64::from(place),
            segments,
            length,
        });
        queue.next = place.wrapping_add(1);
        Ok(())
    }
}

impl<'s, H: Hal, W: RegisterWords> WorkQueue for PvrdmaSharedReceiveQueue<'s, H, W> {
    type Request = ReceiveRequest;
    type Slot<'a>
        = PvrdmaSharedReceivePlace<'a, 's, H, W>
    where
        Self: 'a;

    fn reserve(
        &mut self,
        request: &ReceiveRequest,
        segments: usize,
    ) -> Option<PvrdmaSharedReceivePlace<'_, 's, H, W>> {
        if segments > self.segments as usize {
            return None;
        }
        let place = self.free_place()?;
        Some(PvrdmaSharedReceivePlace {
            queue: self,
            token: request.token,
            place,
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
