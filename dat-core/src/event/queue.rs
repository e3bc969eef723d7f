//! The queue of an event dispatcher: its completion queue, polled completions and other events.

use core::task::Waker;

use super::event::{DtoCompletion, Event};
use super::slot::{self, EventSlot};
use super::{Deferred, Pending};
use crate::backend::{Armed, Completion, CompletionQueue, DeviceFailure, Peek};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{EvdFlags, EvdState};
use crate::id::EvdId;
use crate::record::NO_RECORD;
use crate::shared::Shared;
use crate::sync::{Mutex, RawLock};

/// Tries to arm a completion queue that completions keep slipping into, before giving way.
const ARMING_ROUNDS: u32 = 16;

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

    /// Whether an object lives here.
    pub(crate) fn is_live(&self) -> bool {
        self.queue.with(|queue| !queue.id.is_null())
    }
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// Tells the waits on a dispatcher apart.
    pub(crate) serial: u32,
    pub(crate) threshold: u32,
    /// A notification arrived since the wait began, or events were there when it began.
    pub(crate) notified: bool,
}

/// The first event of a dispatcher, as the common way of a dequeue sees it.
#[derive(Debug)]
pub(crate) enum Head {
    /// The success of a plain data transfer, which was taken.
    Success(DtoCompletion),
    /// No event is queued, and the device has no completion.
    Empty,
    /// Anything else; nothing was taken.
    Other,
}

/// An event dispatcher behind its lock.
#[derive(Debug)]
pub(crate) struct EvdQueue<C> {
    /// The handle while nobody waits and nothing is broken, else one that nobody asks this slot for:
    /// one compare on the way of a dequeue. A free slot's is null and passes a null handle, so who
    /// finds neither events nor a completion queue nor flags behind it has to ask `check`.
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
    pub(crate) capacity: u32,
    pub(crate) depth: u32,
    pub(crate) cno: Option<u16>,
    pub(crate) waiter: Option<Waiter>,
    /// Wakes the waiter; none without one, and none while it looks for itself.
    pub(crate) waker: Option<Waker>,
    /// Set if the dispatcher is waitable and `is_simple`.
    pub(crate) quick: bool,
    /// Serial number of the last wait in this slot.
    pub(crate) waits: u32,
    /// The completion queue will tell of its next completion, or has told and was not heard yet.
    pub(crate) armed: bool,
    /// Latched until the queue is drained, so that one overflow is one report.
    pub(crate) overflowed: bool,
    pub(crate) failure: Option<DeviceFailure>,
    pub(crate) pending: Pending,
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
        capacity: 0,
        depth: 0,
        cno: None,
        waiter: None,
        waker: None,
        quick: false,
        waits: 0,
        armed: false,
        overflowed: false,
        failure: None,
        pending: Pending::NOTHING,
        context: 0,
    };

    /// Empties the slot.
    #[inline(never)]
    pub(crate) fn clear_slot(&mut self) {
        *self = Self {
            generation: self.generation,
            // A wait of this life must not pass for one of the next.
            waits: self.waits,
            ..Self::EMPTY
        };
    }

    /// Events that can be dequeued without asking the device.
    pub(crate) fn queued(&self) -> u32 {
        self.ring_length.saturating_add(self.ready_length)
    }

    /// Brings `open` and `quick` up to date after a change of what they stand for: waiter,
    /// failure, configuration, notification object.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        let sound = self.failure.is_none();
        self.open = if sound && self.waiter.is_none() {
            self.id
        } else {
            self.id.never_matching()
        };
        self.quick = self.waitable && self.is_simple();
    }

    /// Returns true if numbers decide on waits and no notification object is attached.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        self.counts_events() && self.cno.is_none()
    }

    /// Whether `evd` is the dispatcher that lives here.
    pub(crate) fn check(&self, evd: EvdId, instance: u16) -> Result<()> {
        if self.id != evd || evd.is_null() {
            return Err(evd.refused(instance));
        }
        Ok(())
    }

    /// Whether nobody waits (EVW-04, EVG-02).
    pub(crate) fn check_no_waiter(&self) -> Result<()> {
        if self.waiter.is_some() {
            return Err(
                Error::invalid_state(Subtype::InvalidStateEvdWaiter).because(Cause::WaiterPresent)
            );
        }
        Ok(())
    }

    /// Whether the condition of the waiter holds (EVW-01, EVW-11).
    pub(crate) fn is_due(&self) -> bool {
        let queued = self.queued();
        let by_number = self.counts_events();
        self.waiter
            .as_ref()
            .is_some_and(|waiter| queued >= waiter.threshold && (by_number || waiter.notified))
    }

    /// Whether the number of queued events decides on waits, not notifications.
    #[inline(always)]
    pub(crate) fn counts_events(&self) -> bool {
        matches!(self.config, None | Some(EvdConfig::Threshold))
    }

    /// The state as a query reports it (EVQ-02).
    pub(crate) fn state(&self) -> EvdState {
        let enabled = if self.enabled {
            EvdState::ENABLED
        } else {
            EvdState::DISABLED
        };
        let waitable = if self.waitable {
            EvdState::WAITABLE
        } else {
            EvdState::UNWAITABLE
        };
        let config = match self.config {
            None => EvdState::empty(),
            Some(EvdConfig::Notify) => EvdState::CONFIG_NOTIFY,
            Some(EvdConfig::Solicited) => EvdState::CONFIG_SOLICITED,
            Some(EvdConfig::Threshold) => EvdState::CONFIG_THRESHOLD,
        };
        enabled | waitable | config
    }

    /// Lets a waiter in; returns its serial number.
    pub(crate) fn begin_wait(&mut self, threshold: u32) -> u32 {
        self.waits = self.waits.wrapping_add(1);
        self.waiter = Some(Waiter {
            serial: self.waits,
            threshold,
            notified: false,
        });
        self.refresh();
        self.waits
    }

    /// Returns true if the waiter with this serial number takes the next event of any kind.
    ///
    /// No notification object gets a notification of it.
    pub(crate) fn takes_next(&self, serial: u32) -> bool {
        self.failure.is_none()
            && self.is_simple()
            && self
                .waiter
                .is_some_and(|waiter| waiter.serial == serial && waiter.threshold == 1)
    }

    /// Whether the waiter with this serial number is still there.
    #[inline(always)]
    pub(crate) fn is_waiting(&self, serial: u32) -> bool {
        self.waiter
            .as_ref()
            .is_some_and(|waiter| waiter.serial == serial)
    }

    /// Events that are queued when a wait begins end it like notifications (EVW-11).
    pub(crate) fn notify_waiter_of_queued(&mut self) {
        let queued = self.queued();
        if let Some(waiter) = &mut self.waiter {
            waiter.notified = queued != 0;
        }
    }

    /// Gives the waiter another waker; the former one comes back.
    pub(crate) fn change_waker(&mut self, waker: Option<Waker>) -> Option<Waker> {
        core::mem::replace(&mut self.waker, waker)
    }

    /// Whether events were lost: waits take what is left and then fail.
    pub(crate) fn is_in_error(&self) -> bool {
        self.failure.is_some() || self.overflowed
    }

    /// What lost the events.
    pub(crate) fn loss(&self) -> Cause {
        match self.failure {
            Some(DeviceFailure::Broken) => Cause::DeviceGone,
            Some(DeviceFailure::CompletionQueueOverrun) | None => Cause::QueueFull,
        }
    }

    /// Lets the waiter go; its waker comes back.
    #[inline(always)]
    pub(crate) fn end_wait(&mut self) -> Option<Waker> {
        self.waiter = None;
        self.refresh();
        self.waker.take()
    }

    /// Notes that completions were lost or the device failed; nothing more is polled.
    #[cold]
    fn fail(&mut self, failure: DeviceFailure) {
        self.failure = Some(failure);
        self.refresh();
    }

    /// A notification (or another event) arrived: wakes the waiter if its condition holds, or else
    /// triggers the notification object.
    pub(crate) fn announce(&mut self, notifies: bool, deferred: &mut Deferred) {
        let by_number = self.counts_events();
        if let Some(waiter) = &mut self.waiter {
            waiter.notified |= notifies;
            if self.is_due()
                && let Some(waker) = self.waker.take()
            {
                deferred.wake(waker);
            }
        } else if let Some(cno) = self.cno
            && self.enabled
            && (notifies || by_number)
        {
            deferred.notify(cno, self.id, &mut self.pending);
        }
    }
}

impl<C: CompletionQueue> EvdQueue<C> {
    /// Takes the first event if it is the success of a plain data transfer; for `open` dispatchers.
    #[inline(always)]
    pub(crate) fn take_success<B, L>(&mut self, shared: &Shared<'_, B, L>) -> Head
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if self.ring_length | self.ready_length != 0 {
            return Head::Other;
        }
        let Some(completions) = &mut self.completions else {
            return Head::Other;
        };
        match completions.peek() {
            Peek::Success { token, length } => match shared.plain(token) {
                Some((record, plain)) => {
                    // First, so that a poster that sees the record free finds room in the queue.
                    completions.skip();
                    Head::Success(shared.finish_plain(record, plain, length))
                }
                None => Head::Other,
            },
            Peek::Empty => Head::Empty,
            Peek::Other => Head::Other,
        }
    }

    /// Removes the first event, whatever it takes.
    pub(crate) fn dequeue<B, L>(&mut self, evd: EvdId, shared: &Shared<'_, B, L>) -> Result<Event>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        self.check(evd, shared.instance)?;
        self.check_no_waiter()?;
        if self.queued() != 0 {
            return self.take_queued(shared);
        }
        // Completions without an event (suppressed, stale) are skipped; a device that delivers
        // nothing else for as long as its queue is deep gets another chance at the next call.
        for _ in 0..self.depth {
            let Some(queue) = &mut self.completions else {
                break;
            };
            if self.failure.is_some() {
                break;
            }
            match queue.poll().transpose() {
                Some(Ok(completion)) => {
                    if let Some(event) = shared.deliver(&completion, queue.immediate()) {
                        return Ok(event);
                    }
                }
                Some(Err(failure)) => {
                    self.fail(failure);
                    // The cause makes the caller report the failure, once.
                    return Err(Error::queue_empty().because(Cause::DeviceGone));
                }
                None => break,
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
            let front = self.ring_slot(&shared.events, 0);
            // Both counters run freely, so their distance is signed.
            let ahead = front.map_or(0, |slot| slot.after().wrapping_sub(self.ready_left)) as i32;
            if self.ready_length == 0 || ahead <= 0 {
                let event = front.and_then(EventSlot::load);
                self.drop_other();
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
            .take_event(record, index)
            .ok_or(Error::internal(Cause::CorruptCompletion))
    }

    /// Polls all completions there are into the list of ready ones.
    pub(crate) fn poll<B, L>(&mut self, shared: &Shared<'_, B, L>, deferred: &mut Deferred)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let mut patience = self.depth.saturating_add(1);
        while patience != 0 && self.failure.is_none() {
            patience = patience.wrapping_sub(1);
            let Some(completions) = &mut self.completions else {
                return;
            };
            let Some(polled) = completions.poll().transpose() else {
                return;
            };
            let immediate = completions.immediate();
            self.take_polled(polled, immediate, shared, deferred);
        }
    }

    /// Queues what a poll brought, and announces it.
    pub(crate) fn take_polled<B, L>(
        &mut self,
        polled: core::result::Result<Completion, DeviceFailure>,
        immediate: Option<u32>,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        match polled {
            Ok(completion) => {
                if let Some((index, notifies)) = shared.keep(&completion, immediate) {
                    self.join_ready(index, shared);
                    self.announce(notifies, deferred);
                }
            }
            Err(failure) => {
                self.fail(failure);
                deferred.failure(self.id, failure, &mut self.pending);
                // A waiter is told that nothing more is coming.
                if let Some(waker) = self.waker.take() {
                    deferred.wake(waker);
                }
            }
        }
    }

    /// Sees to it that the device tells of the next completion, if somebody wants to know: a waiter
    /// whose condition does not hold yet, or a notification object while the dispatcher is enabled.
    ///
    /// Completions that slipped in before the arming are taken in and announced.
    pub(crate) fn keep_armed<B, L>(&mut self, shared: &Shared<'_, B, L>, deferred: &mut Deferred)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let notified = self.enabled && self.cno.is_some();
        let solicited_only = self.config == Some(EvdConfig::Solicited);
        let rounds = match self.waiter {
            Some(_) => ARMING_ROUNDS,
            // Whoever drains the dispatcher for its notification object does not arm it. There are no more events than it
            // is deep until then, so that no more completions can slip in.
            None => ARMING_ROUNDS.saturating_add(self.depth),
        };
        for _ in 0..rounds {
            let wanted = notified || (self.waiter.is_some() && !self.is_due());
            if !wanted || self.armed || self.failure.is_some() {
                return;
            }
            let Some(completions) = &mut self.completions else {
                return;
            };
            match completions.arm(solicited_only) {
                Armed::Armed => self.armed = true,
                Armed::Missed => self.poll(shared, deferred),
            }
        }
        if self.armed {
            return;
        }
        // Too busy to be armed: whoever waits looks again at once.
        if self.waiter.is_none() {
            self.announce(true, deferred);
        } else if let Some(waker) = self.waker.take() {
            deferred.wake(waker);
        }
    }

    /// The last endpoint stream ended: the next one decides anew how waits are shaped.
    pub(crate) fn unfix_config<B, L>(&mut self, shared: &Shared<'_, B, L>)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let narrow = self.config == Some(EvdConfig::Solicited);
        self.config = None;
        self.refresh();
        if !(narrow && self.armed) {
            return;
        }
        self.arm_for_all(shared);
    }

    /// Armed for solicited completions only: the next stream may want to hear of all. No stream
    /// is left, so what is still in the completion queue makes no events and wakes nobody.
    #[cold]
    #[inline(never)]
    fn arm_for_all<B, L>(&mut self, shared: &Shared<'_, B, L>)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        self.armed = false;
        let mut nobody = Deferred::default();
        let waker = self.waker.take();
        self.keep_armed(shared, &mut nobody);
        self.waker = waker;
        nobody.wakers.clear();
        if !nobody.failed.is_empty() {
            // The next poll finds the failure again, and reports it.
            self.failure = None;
            self.refresh();
        }
    }

    /// Empties the queue for good: events are lost, slots and records go back.
    pub(crate) fn discard<B, L>(&mut self, shared: &Shared<'_, B, L>) -> Option<C>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let mut index = self.ready_first;
        for _ in 0..self.ready_length {
            let Some(record) = shared.records.get(index as usize) else {
                break;
            };
            let next = record.next();
            let _lost = shared.take_event(record, index);
            index = next;
        }
        slot::give_back(shared.events.made(), self.ring_base, self.ring_capacity);
        let completions = self.completions.take();
        self.clear_slot();
        completions
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
                let _event = shared.take_event(record, index);
                // Other events are ordered by how many completions precede them: those behind this
                // one move up.
                let position = self.ready_left.wrapping_add(self.ready_length);
                for offset in 0..self.ring_length {
                    if let Some(slot) = self.ring_slot(&shared.events, offset)
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
}
