//! Ring of a dispatcher's events other than completions, with their positions among these.

use super::Deferred;
use super::event::Event;
use super::queue::EvdQueue;
use super::slot::EventSlot;
use crate::backend::CompletionQueue;
use crate::id::CrId;
use crate::shared::Shared;
use crate::storage::Runs;
use crate::sync::RawLock;

impl<C: CompletionQueue> EvdQueue<C> {
    /// Drops the first event of the ring, which the caller has read.
    #[inline(always)]
    pub(super) fn drop_other(&mut self) {
        self.ring_head = wrap(self.ring_head, 1, self.ring_capacity);
        self.ring_length = self.ring_length.wrapping_sub(1);
    }

    /// Moves the ring to another run of slots, which has room for the queued events.
    ///
    /// Returns the former run, which the caller gives back.
    pub(crate) fn move_ring(
        &mut self,
        events: &Runs<'_, EventSlot>,
        base: u32,
        capacity: u32,
    ) -> (u32, u32) {
        for offset in 0..self.ring_length {
            let from = self.ring_slot(events, offset);
            let to = events.get(base.wrapping_add(offset) as usize);
            if let (Some(from), Some(to)) = (from, to) {
                to.copy_from(from);
            }
        }
        let former = (self.ring_base, self.ring_capacity);
        (self.ring_base, self.ring_capacity) = (base, capacity);
        self.ring_head = 0;
        former
    }

    /// Removes ring events up to the first connection request and returns it.
    ///
    /// For a dispatcher that is being freed.
    pub(crate) fn take_request(&mut self, events: &Runs<'_, EventSlot>) -> Option<CrId> {
        while self.ring_length != 0 {
            let event = self.ring_slot(events, 0).and_then(EventSlot::load);
            self.drop_other();
            if let Some(Event::ConnectionRequest { cr, .. }) = event {
                return Some(cr);
            }
        }
        None
    }

    /// Queues an event other than a completion, after all completions that can be polled.
    ///
    /// Returns false if the queue is full; the event is then not queued, and the caller reports it.
    pub(crate) fn push<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        // Where the lock parks, the caller has polled before it took the lock.
        if !L::PARKS {
            self.poll(shared, deferred);
        }
        self.push_ahead(event, shared, deferred)
    }

    /// As `push`, but before unpolled completions: ESTABLISHED precedes all data of its connection.
    pub(crate) fn push_ahead<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let queued = self.append(event, &shared.events);
        if queued {
            self.announce(true, deferred);
        }
        queued
    }

    /// As `push_ahead`, without an announcement.
    #[inline(always)]
    pub(crate) fn append(&mut self, event: &Event, events: &Runs<'_, EventSlot>) -> bool {
        if self.ring_length >= self.queue_length {
            return false;
        }
        let Some(slot) = self.ring_slot(events, self.ring_length) else {
            return false;
        };
        slot.store(event, self.ready_joined);
        self.ring_length = self.ring_length.wrapping_add(1);
        true
    }

    /// Queues an endpoint's ESTABLISHED before all its completions, polled ones included.
    ///
    /// `after` is the position of the first of them in the list of ready completions.
    pub(crate) fn push_established<B, L>(
        &mut self,
        event: &Event,
        after: u32,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if !self.push_ahead(event, shared, deferred) {
            return false;
        }
        // Ring events are ordered by the number of completions before them: those with a higher
        // number move one slot towards the end.
        let mut position = self.ring_length.wrapping_sub(1);
        while let (Some(slot), Some(before)) = (
            self.ring_slot(&shared.events, position),
            position
                .checked_sub(1)
                .and_then(|before| self.ring_slot(&shared.events, before)),
        ) {
            if before.after().wrapping_sub(after) as i32 <= 0 {
                break;
            }
            slot.copy_from(before);
            position = position.wrapping_sub(1);
        }
        if let Some(slot) = self.ring_slot(&shared.events, position) {
            slot.store(event, after);
        }
        true
    }

    /// As `push`, for unsolicited events: a full queue is an overflow, reported once (DTO-13).
    pub(crate) fn push_unsolicited<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let queued = self.push(event, shared, deferred);
        self.note_overflow(queued, deferred);
        queued
    }

    /// As `push_unsolicited`, for an event that makes the others irrelevant.
    ///
    /// If the queue is full, it replaces the newest ring event.
    #[cold]
    pub(crate) fn push_final<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if !self.push_unsolicited(event, shared, deferred)
            && let Some(youngest) = self.ring_length.checked_sub(1)
            && let Some(slot) = self.ring_slot(&shared.events, youngest)
        {
            slot.store(event, slot.after());
            self.announce(true, deferred);
        }
    }

    /// Reports a lost event, unless one was reported since the queue was empty.
    pub(crate) fn note_overflow(&mut self, queued: bool, deferred: &mut Deferred) {
        if !queued && !self.overflowed {
            self.overflowed = true;
            deferred.overflow(self.id, &mut self.pending);
        }
    }

    /// Returns the slot of a queued event, or of the next one if it fits.
    #[inline(always)]
    pub(super) fn ring_slot<'s>(
        &self,
        events: &'s Runs<'_, EventSlot>,
        position: u32,
    ) -> Option<&'s EventSlot> {
        let offset = wrap(self.ring_head, position, self.ring_capacity);
        events.get(self.ring_base.wrapping_add(offset) as usize)
    }
}

/// Returns `position + step` in a ring; both are at most `capacity`.
#[inline(always)]
fn wrap(position: u32, step: u32, capacity: u32) -> u32 {
    let sum = position.wrapping_add(step);
    if sum >= capacity {
        sum.wrapping_sub(capacity)
    } else {
        sum
    }
}
