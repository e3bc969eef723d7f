//! A ring that the driver fills: descriptors of one size, and a page that says how many there are.

use core::marker::PhantomData;

use dat_core::backend::Segment;

use super::completion_queue::is_forgotten;
use super::defs::{Piece, Words, doorbell};
use super::pages::View;
use crate::hal::Hal;
use crate::mlx5::storage::{QueueCell, QueuePairSlot, RequestSlot, State};
use crate::words::RegisterWords;

/// The driver's side of a ring of requests or receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'s> {
    /// The page of its state, and where its producer is in it.
    pub(crate) state: View<'s>,
    pub(crate) producer: u32,
    /// Its descriptors.
    pub(crate) descriptors: View<'s>,
    /// Bytes of a descriptor, and of what comes before its pieces.
    pub(crate) stride: u32,
    pub(crate) header: u32,
    /// Descriptors, a power of two; and those that were put down, which runs freely.
    pub(crate) entries: u32,
    pub(crate) head: u32,
}

impl Ring<'_> {
    /// Where the next descriptor is.
    #[inline(always)]
    fn next(&self) -> u32 {
        (self.head & self.entries.wrapping_sub(1)).wrapping_mul(self.stride)
    }

    /// Puts down a piece of the next descriptor; nothing where it has no room.
    #[inline(always)]
    pub(crate) fn piece(&self, place: u32, segment: Segment) {
        let offset = self.header.saturating_add(place.saturating_mul(16));
        if offset.saturating_add(16) > self.stride {
            return;
        }
        let piece = Piece {
            address: segment.address,
            length: segment.length,
            key: segment.key,
        };
        self.descriptors
            .put(self.next().wrapping_add(offset), &piece);
    }

    /// Puts down what begins the next descriptor, which is complete then.
    #[inline(always)]
    pub(crate) fn complete(&mut self, header: &impl Words) {
        self.descriptors.put(self.next(), header);
        self.head = self.head.wrapping_add(1);
    }

    /// Has the device see all that is complete. Indices of the device run to twice the size.
    #[inline(always)]
    pub(crate) fn publish<H: Hal>(&self) {
        H::to_device();
        let twice = self.entries.wrapping_mul(2).wrapping_sub(1);
        self.state.store(self.producer, self.head & twice);
        H::to_register();
    }
}

/// What the driver remembers of the descriptors of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted<'s> {
    pub(crate) cell: &'s QueueCell,
    /// One for each descriptor.
    pub(crate) slots: &'s [RequestSlot],
    /// The oldest when it was last looked for.
    pub(crate) tail: u32,
}

impl Posted<'_> {
    /// Whether there is room for another one in a ring of so many, of which `head` were put down.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, head: u32, entries: u32) -> bool {
        if head.wrapping_sub(self.tail) < entries {
            return true;
        }
        self.tail = self.cell.tail();
        head.wrapping_sub(self.tail) < entries
    }

    /// Remembers the descriptor at an index, which is the newest.
    #[inline(always)]
    pub(crate) fn remember(&self, index: u32, entries: u32, token: u64, length: u32) {
        let place = index & entries.wrapping_sub(1);
        if let Some(slot) = self.slots.get(place as usize) {
            slot.put(token, length);
        }
        self.cell.set_head(index.wrapping_add(1));
    }
}

/// A queue of a queue pair as its poster sees it: for requests, or for receives.
#[derive(Debug)]
pub(crate) struct WorkRing<'s, H, W> {
    pub(crate) hal: PhantomData<fn() -> H>,
    pub(crate) doorbells: W,
    pub(crate) ring: Ring<'s>,
    pub(crate) posted: Posted<'s>,
    pub(crate) life: &'s QueuePairSlot,
    pub(crate) state: &'s State,
    pub(crate) user_index: u32,
    pub(crate) number: u32,
    pub(crate) segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkRing<'_, H, W> {
    /// Whether there is room for a descriptor of so many segments.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, segments: usize) -> bool {
        let Ring { head, entries, .. } = self.ring;
        segments <= self.segments as usize && self.posted.has_room(head, entries)
    }

    /// What the next descriptor is called in its completion.
    #[inline(always)]
    pub(crate) fn next_name(&self) -> u64 {
        name(self.user_index, self.ring.head)
    }

    /// Puts down what begins the next descriptor, and remembers it.
    #[inline(always)]
    pub(crate) fn post(&mut self, header: &impl Words, token: u64, length: u32) {
        let (index, entries) = (self.ring.head, self.ring.entries);
        self.ring.complete(header);
        self.posted.remember(index, entries, token, length);
    }

    /// Has the device see what was posted, if it is still there for it.
    #[inline(always)]
    pub(crate) fn tell(&self, which: u32) {
        if !self.state.is_faulty() && !is_forgotten(self.life) {
            self.ring.publish::<H>();
            self.doorbells
                .write(doorbell::QUEUE_PAIR, self.number | which);
        }
    }
}

/// What a descriptor of a queue pair is called in its completion: the queue pair's name of this life, and the index.
#[inline(always)]
pub(crate) fn name(user_index: u32, index: u32) -> u64 {
    u64::from(user_index) << 32 | u64::from(index)
}

/// The bit in the names of descriptors of shared queues.
pub(crate) const SHARED: u64 = 1 << 63;

/// What a buffer of a shared queue is called in its completion: how many queues there were where this one is, as far as there are
/// bits; where it is; and the place of the buffer.
pub(crate) const fn shared_name(life: u32, queue: u16, place: u32) -> u64 {
    SHARED | (life as u64 & 0x7FFF) << 48 | (queue as u64) << 32 | place as u64
}
