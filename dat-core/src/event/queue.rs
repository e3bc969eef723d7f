//! The queue of an event dispatcher: its completion queue, polled completions and other events.

use core::task::Waker;

use super::Aftermath;
use super::event::Event;
use super::slot::EventSlot;
use crate::backend::{CompletionQueue, DeviceFailure};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::EvdFlags;
use crate::id::EvdId;
use crate::record::NO_RECORD;
use crate::shared::Shared;
use crate::sync::{Mutex, RawLock};

/// Place for one event dispatcher.
pub struct EvdSlot<C, L> {
    pub(crate) queue: Mutex<L, EvdQueue<C>>,
}

impl<C, L: RawLock> EvdSlot<C, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        queue: Mutex::new(EvdQueue::EMPTY),
    };
}

/// When a waiter is woken: fixed by the first endpoint stream that feeds the dispatcher (EVQ-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvdConfig {
    /// By notifications.
    Notify,
    /// By solicited and failed completions.
    Solicited,
    /// By the number of queued events.
    Threshold,
}

/// The one that waits on a dispatcher.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) threshold: u32,
    pub(crate) waker: Option<Waker>,
    /// A notification arrived since the wait began.
    pub(crate) notified: bool,
    /// The wait ends with this error.
    pub(crate) released: Option<Error>,
}

/// An event dispatcher behind its lock.
#[derive(Debug)]
pub(crate) struct EvdQueue<C> {
    /// The handle while nobody waits and nothing is broken, else null: one compare on the way of a dequeue.
    pub(crate) open: EvdId,
    pub(crate) completions: Option<C>,
    /// Other events: a ring in the lent event slots.
    pub(crate) ring_base: u32,
    pub(crate) ring_capacity: u32,
    pub(crate) ring_head: u32,
    pub(crate) ring_length: u32,
    /// Polled completions: a list through the records, oldest first.
    pub(crate) ready_first: u32,
    pub(crate) ready_last: u32,
    pub(crate) ready_length: u32,
    /// How many completions ever joined and left that list; orders them among other events.
    pub(crate) ready_joined: u32,
    pub(crate) ready_left: u32,
    pub(crate) id: EvdId,
    pub(crate) generation: u32,
    pub(crate) queue_length: u32,
    pub(crate) flags: EvdFlags,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    pub(crate) config: Option<EvdConfig>,
    /// Streams that feed it: endpoints once per role, service points, the asynchronous stream.
    pub(crate) streams: u32,
    /// Endpoint streams among them (they fix `config`).
    pub(crate) endpoint_streams: u32,
    /// Completions that attached queues may have outstanding; the depth the completion queue needs.
    pub(crate) places: u32,
    pub(crate) depth: u32,
    pub(crate) cno: Option<u16>,
    pub(crate) waiter: Option<Waiter>,
    /// Latched until the queue is drained, so that one overflow is one report.
    pub(crate) overflowed: bool,
    pub(crate) failure: Option<DeviceFailure>,
    pub(crate) context: u64,
}

impl<C> EvdQueue<C> {
    pub(crate) const EMPTY: Self = Self {
        open: EvdId::NULL,
        completions: None,
        ring_base: 0,
        ring_capacity: 0,
        ring_head: 0,
        ring_length: 0,
        ready_first: NO_RECORD,
        ready_last: NO_RECORD,
        ready_length: 0,
        ready_joined: 0,
        ready_left: 0,
        id: EvdId::NULL,
        generation: 0,
        queue_length: 0,
        flags: EvdFlags::empty(),
        enabled: false,
        waitable: false,
        config: None,
        streams: 0,
        endpoint_streams: 0,
        places: 0,
        depth: 0,
        cno: None,
        waiter: None,
        overflowed: false,
        failure: None,
        context: 0,
    };

    /// Events that can be dequeued without asking the device.
    pub(crate) fn queued(&self) -> u32 {
        self.ring_length.saturating_add(self.ready_length)
    }

    /// Brings `open` up to date after a change of what it stands for.
    pub(crate) fn refresh_open(&mut self) {
        self.open = if self.waiter.is_none() {
            self.id
        } else {
            EvdId::NULL
        };
    }

    /// Why `evd` may not dequeue now.
    #[cold]
    pub(crate) fn refusal(&self, evd: EvdId, instance: u16) -> Error {
        if self.id != evd || evd.is_null() {
            evd.refused_as(instance, Subtype::InvalidHandle1)
        } else {
            Error::invalid_state(Subtype::InvalidStateEvdWaiter).because(Cause::WaiterPresent)
        }
    }

    /// A notification (or another event) arrived: wakes the waiter if its condition holds, or else
    /// triggers the notification object.
    pub(crate) fn announce(&mut self, notifies: bool, aftermath: &mut Aftermath) {
        let queued = self.queued();
        let by_number = matches!(self.config, None | Some(EvdConfig::Threshold));
        if let Some(waiter) = &mut self.waiter {
            waiter.notified |= notifies;
            let due = if by_number {
                queued >= waiter.threshold
            } else {
                waiter.notified
            };
            if due && let Some(waker) = waiter.waker.take() {
                aftermath.wake(waker);
            }
        } else if let Some(cno) = self.cno
            && self.enabled
            && (notifies || by_number)
        {
            aftermath.notify(cno, self.id);
        }
    }
}

impl<C: CompletionQueue> EvdQueue<C> {
    /// Removes the first event.
    #[inline]
    pub(crate) fn dequeue<B, L>(&mut self, evd: EvdId, shared: &Shared<'_, B, L>) -> Result<Event>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if self.open != evd || evd.is_null() {
            return Err(self.refusal(evd, shared.instance));
        }
        if self.ring_length | self.ready_length != 0 {
            return self.take_queued(shared);
        }
        if let Some(completions) = &mut self.completions {
            // Completions without an event (suppressed, stale) are skipped; a device that delivers
            // nothing else for as long as its queue is deep gets another chance at the next call.
            let mut patience = self.depth;
            loop {
                match completions.poll() {
                    Ok(Some(completion)) => {
                        if let Some(event) = shared.deliver(&completion) {
                            return Ok(event);
                        }
                    }
                    Ok(None) => break,
                    Err(failure) => {
                        self.failure = Some(failure);
                        break;
                    }
                }
                patience = patience.wrapping_sub(1);
                if patience == 0 {
                    break;
                }
            }
        }
        self.overflowed = false;
        Err(Error::queue_empty())
    }

    /// Removes the first event that needs no asking of the device.
    pub(crate) fn take_queued<B, L>(&mut self, shared: &Shared<'_, B, L>) -> Result<Event>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if self.ring_length != 0 {
            let front = self.ring_slot(shared.events, 0);
            // Both counters run freely, so their distance is signed.
            let ahead = front.map_or(0, |slot| slot.after().wrapping_sub(self.ready_left)) as i32;
            if self.ready_length == 0 || ahead <= 0 {
                let event = front.and_then(EventSlot::load);
                self.ring_head = wrap(self.ring_head, 1, self.ring_capacity);
                self.ring_length = self.ring_length.wrapping_sub(1);
                return event.ok_or(Error::internal(Cause::CorruptCompletion));
            }
        }
        let index = self.ready_first;
        let record = shared
            .records
            .get(index as usize)
            .ok_or(Error::queue_empty())?;
        self.ready_first = record.next();
        if self.ready_first == NO_RECORD {
            self.ready_last = NO_RECORD;
        }
        self.ready_length = self.ready_length.wrapping_sub(1);
        self.ready_left = self.ready_left.wrapping_add(1);
        shared
            .reap(record, index)
            .ok_or(Error::internal(Cause::CorruptCompletion))
    }

    /// Polls all completions there are into the list of ready ones.
    pub(crate) fn harvest<B, L>(&mut self, shared: &Shared<'_, B, L>, aftermath: &mut Aftermath)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let mut patience = self.depth.saturating_add(1);
        while patience != 0 {
            patience = patience.wrapping_sub(1);
            let Some(completions) = &mut self.completions else {
                return;
            };
            match completions.poll() {
                Ok(Some(completion)) => {
                    if let Some((index, notifies)) = shared.keep(&completion) {
                        self.join_ready(index, shared);
                        self.announce(notifies, aftermath);
                    }
                }
                Ok(None) => return,
                Err(failure) => {
                    self.failure = Some(failure);
                    return;
                }
            }
        }
    }

    fn join_ready<B, L>(&mut self, index: u32, shared: &Shared<'_, B, L>)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        match shared.records.get(self.ready_last as usize) {
            Some(last) => last.set_next(index),
            None => self.ready_first = index,
        }
        self.ready_last = index;
        self.ready_length = self.ready_length.wrapping_add(1);
        self.ready_joined = self.ready_joined.wrapping_add(1);
    }

    /// Queues an event that is no completion, behind all completions there are by now.
    ///
    /// False: the queue is full and the event was not queued; what that means is the caller's matter.
    pub(crate) fn push<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        aftermath: &mut Aftermath,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        self.harvest(shared, aftermath);
        if self.ring_length >= self.ring_capacity {
            return false;
        }
        let Some(slot) = self.ring_slot(shared.events, self.ring_length) else {
            return false;
        };
        slot.store(event, self.ready_joined);
        self.ring_length = self.ring_length.wrapping_add(1);
        self.announce(true, aftermath);
        true
    }

    /// As `push`, for events nobody asked for: a full queue is an overflow, reported once (DTO-13).
    pub(crate) fn push_unsolicited<B, L>(
        &mut self,
        event: &Event,
        shared: &Shared<'_, B, L>,
        aftermath: &mut Aftermath,
    ) where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if !self.push(event, shared, aftermath) && !self.overflowed {
            self.overflowed = true;
            aftermath.overflow(self.id);
        }
    }

    /// Drops the ready completions of one endpoint slot; their records go back to their queues.
    pub(crate) fn forget_endpoint<B, L>(&mut self, endpoint: u16, shared: &Shared<'_, B, L>)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let mut index = core::mem::replace(&mut self.ready_first, NO_RECORD);
        self.ready_last = NO_RECORD;
        let before = core::mem::take(&mut self.ready_length);
        for _ in 0..before {
            let Some(record) = shared.records.get(index as usize) else {
                break;
            };
            let next = record.next();
            if shared.endpoint_of(record) == Some(endpoint) {
                let _event = shared.reap(record, index);
                // Other events are ordered by how many completions precede them: those behind this
                // one move up.
                let position = self.ready_left.wrapping_add(self.ready_length);
                for offset in 0..self.ring_length {
                    if let Some(slot) = self.ring_slot(shared.events, offset)
                        && slot.after().wrapping_sub(position) as i32 > 0
                    {
                        slot.set_after(slot.after().wrapping_sub(1));
                    }
                }
                self.ready_joined = self.ready_joined.wrapping_sub(1);
            } else {
                record.set_next(NO_RECORD);
                match shared.records.get(self.ready_last as usize) {
                    Some(last) => last.set_next(index),
                    None => self.ready_first = index,
                }
                self.ready_last = index;
                self.ready_length = self.ready_length.wrapping_add(1);
            }
            index = next;
        }
    }

    pub(super) fn ring_slot<'s>(
        &self,
        events: &'s [EventSlot],
        position: u32,
    ) -> Option<&'s EventSlot> {
        if position >= self.ring_capacity {
            return None;
        }
        let offset = wrap(self.ring_head, position, self.ring_capacity);
        events.get(self.ring_base.wrapping_add(offset) as usize)
    }
}

/// `position + step` in a ring; both are at most `capacity`.
fn wrap(position: u32, step: u32, capacity: u32) -> u32 {
    let sum = position.wrapping_add(step);
    if sum >= capacity {
        sum.wrapping_sub(capacity)
    } else {
        sum
    }
}
