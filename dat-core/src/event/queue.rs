//! The queue of an event dispatcher: its completion queue, polled completions and other events.

use core::task::Waker;

use super::completion::Polled;
use super::event::{DtoCompletion, Event};
use super::slot::{self, EventSlot};
use super::{Deferred, Pending};
use crate::backend::{Armed, Completion, CompletionQueue, DeviceFailure, Peek};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{EvdFlags, EvdState};
use crate::id::{EvdId, Index};
use crate::record::{NO_RECORD, RecordSlot};
use crate::shared::Shared;
use crate::storage::VisitLink;
use crate::sync::{Mutex, RawLock};

/// Maximum attempts to arm a completion queue into which completions keep arriving.
pub(crate) const ARMING_ROUNDS: u32 = 16;

/// Slot for one event dispatcher.
///
/// On hosts its address has four spare bits, in which the C libraries name kind and backend.
#[cfg_attr(any(feature = "std", target_pointer_width = "64"), repr(align(16)))]
pub struct EvdSlot<C, L> {
    pub(crate) queue: Mutex<L, EvdQueue<C>>,
    /// Link in the list of dispatchers with a waker.
    pub(crate) waits: VisitLink,
}

impl<C, L: RawLock> EvdSlot<C, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        queue: Mutex::new(EvdQueue::EMPTY),
        waits: VisitLink::NONE,
    };

    /// Returns true if the slot holds a dispatcher.
    pub(crate) fn is_live(&self) -> bool {
        self.queue.with(|queue| !queue.id.is_null())
    }
}

/// A walk through the ready completions of a dispatcher, which may release the lock at each step.
///
/// Needs the control lock: only dequeues remove completions during the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyWalk {
    /// Index of the last record that was left in the list.
    previous: u32,
    /// Number of completions that left the list or precede the next one.
    pub(crate) position: u32,
    /// The position after those that were in the list at the start.
    end: u32,
}

impl ReadyWalk {
    /// Creates a walk from the start of a dispatcher's list.
    pub(crate) const fn of<C>(queue: &EvdQueue<C>) -> Self {
        Self {
            previous: NO_RECORD,
            position: queue.ready_left,
            end: queue.ready_joined,
        }
    }

    /// Steps over the record with this index.
    fn step(&mut self, index: u32) {
        self.previous = index;
        self.position = self.position.wrapping_add(1);
    }
}

/// Condition for waking a waiter, set by the first endpoint stream (EVQ-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvdConfig {
    /// Notifications.
    Notify,
    /// Solicited and failed completions.
    Solicited,
    /// Number of queued events.
    Threshold,
}

/// The waiter of a dispatcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// Serial number of the wait.
    pub(crate) serial: u32,
    pub(crate) threshold: u32,
    /// Set if a notification arrived since the wait began, or events were queued then.
    pub(crate) notified: bool,
}

/// First event of a dispatcher, on the common way of a dequeue.
#[derive(Debug)]
pub(crate) enum Head {
    /// A successful plain data transfer, which was taken.
    Success(DtoCompletion),
    /// No event is queued, and the device has no completion.
    Empty,
    /// Any other event; nothing was taken.
    Other,
}

/// Event dispatcher, protected by its lock.
#[derive(Debug)]
pub(crate) struct EvdQueue<C> {
    /// The handle if there is no waiter and no failure, else a value that never matches it.
    ///
    /// A free slot has the null handle, which a null argument matches. It has no events, completion
    /// queue or flags. A caller that finds none of these must call `check`.
    pub(crate) open: EvdId,
    pub(crate) completions: Option<C>,
    /// First slot of the ring of events other than completions.
    pub(crate) ring_base: u32,
    pub(crate) ring_capacity: u32,
    pub(crate) ring_head: u32,
    pub(crate) ring_length: u32,
    /// First polled completion of the list through the records, oldest first.
    pub(crate) ready_first: u32,
    pub(crate) ready_last: u32,
    pub(crate) ready_length: u32,
    /// Counts of completions that joined and left that list; they order the events of the ring.
    ///
    /// An event stores `ready_joined` when it is queued, and is next when `ready_left` has reached
    /// that number. Forgetting an endpoint lowers the stored numbers and `ready_joined`.
    pub(crate) ready_joined: u32,
    pub(crate) ready_left: u32,
    pub(crate) id: EvdId,
    pub(crate) generation: u32,
    pub(crate) queue_length: u32,
    pub(crate) flags: EvdFlags,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    pub(crate) config: Option<EvdConfig>,
    /// Number of streams that feed it: endpoints once per role, service points, asynchronous.
    pub(crate) streams: u32,
    /// Number of endpoint streams among them, which set `config`.
    pub(crate) endpoint_streams: u32,
    /// Completions that attached queues may have outstanding: the necessary depth.
    pub(crate) capacity: u32,
    pub(crate) depth: u32,
    pub(crate) cno: Option<Index>,
    pub(crate) waiter: Option<Waiter>,
    /// Waker of the waiter; `None` without a waiter and while it polls.
    pub(crate) waker: Option<Waker>,
    /// Set if the dispatcher is waitable and `is_simple`.
    pub(crate) quick: bool,
    /// Serial number of the last wait in this slot.
    pub(crate) waits: u32,
    /// Set if the completion queue is armed, or has notified and was not handled yet.
    pub(crate) armed: bool,
    /// Set from an overflow until the queue is drained, so that one overflow is reported once.
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

    /// Clears the slot; keeps the generation.
    #[inline(never)]
    pub(crate) fn clear_slot(&mut self) {
        *self = Self {
            generation: self.generation,
            // So a wait of this generation never matches one of the next.
            waits: self.waits,
            ..Self::EMPTY
        };
    }

    /// Returns the number of events that can be dequeued without polling the device.
    pub(crate) fn queued(&self) -> u32 {
        self.ring_length.saturating_add(self.ready_length)
    }

    /// Updates `open` and `quick`.
    ///
    /// Call it after a change of waiter, failure, configuration or notification object.
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

    /// Returns true if event counts end waits and no notification object is attached.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        self.counts_events() && self.cno.is_none()
    }

    /// Checks that `evd` is the handle of this dispatcher.
    pub(crate) fn check(&self, evd: EvdId, instance: u16) -> Result<()> {
        if self.id != evd || evd.is_null() {
            return Err(evd.refused(instance));
        }
        Ok(())
    }

    /// Checks that the dispatcher has no waiter (EVW-04, EVG-02).
    pub(crate) fn check_no_waiter(&self) -> Result<()> {
        if self.waiter.is_some() {
            return Err(
                Error::invalid_state(Subtype::InvalidStateEvdWaiter).because(Cause::WaiterPresent)
            );
        }
        Ok(())
    }

    /// Returns true if the waiter's condition holds (EVW-01, EVW-11).
    pub(crate) fn is_due(&self) -> bool {
        let queued = self.queued();
        let by_number = self.counts_events();
        self.waiter
            .as_ref()
            .is_some_and(|waiter| queued >= waiter.threshold && (by_number || waiter.notified))
    }

    /// Returns true if the number of queued events ends waits, and notifications do not.
    #[inline(always)]
    pub(crate) fn counts_events(&self) -> bool {
        matches!(self.config, None | Some(EvdConfig::Threshold))
    }

    /// Returns the state as a query reports it (EVQ-02).
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

    /// Adds the waiter; returns its serial number.
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

    /// Returns true if the wait with this serial number takes the next event of any kind.
    ///
    /// The event then triggers no notification object.
    pub(crate) fn takes_next(&self, serial: u32) -> bool {
        self.failure.is_none()
            && self.is_simple()
            && self
                .waiter
                .is_some_and(|waiter| waiter.serial == serial && waiter.threshold == 1)
    }

    /// Returns true if the wait with this serial number is still pending.
    #[inline(always)]
    pub(crate) fn is_waiting(&self, serial: u32) -> bool {
        self.waiter
            .as_ref()
            .is_some_and(|waiter| waiter.serial == serial)
    }

    /// Notifies a new waiter if events are queued, since these end its wait too (EVW-11).
    pub(crate) fn notify_waiter_of_queued(&mut self) {
        let queued = self.queued();
        if let Some(waiter) = &mut self.waiter {
            waiter.notified = queued != 0;
        }
    }

    /// Replaces the waiter's waker; returns the former one.
    pub(crate) fn change_waker(&mut self, waker: Option<Waker>) -> Option<Waker> {
        core::mem::replace(&mut self.waker, waker)
    }

    /// Returns true if events were lost: waits take the events left and then fail.
    pub(crate) fn is_in_error(&self) -> bool {
        self.failure.is_some() || self.overflowed
    }

    /// Returns the cause of the lost events.
    pub(crate) fn loss(&self) -> Cause {
        match self.failure {
            Some(DeviceFailure::Broken) => Cause::DeviceGone,
            Some(DeviceFailure::CompletionQueueOverrun) | None => Cause::QueueFull,
        }
    }

    /// Removes the waiter; returns its waker.
    #[inline(always)]
    pub(crate) fn end_wait(&mut self) -> Option<Waker> {
        self.waiter = None;
        self.refresh();
        self.waker.take()
    }

    /// Records that completions were lost or the device failed; polling then stops.
    #[cold]
    fn fail(&mut self, failure: DeviceFailure) {
        self.failure = Some(failure);
        self.refresh();
    }

    /// Announces a new event: wakes the waiter, or triggers the notification object without one.
    ///
    /// `notifies` is true if the event is a notification. A waiter is woken only if its condition
    /// holds.
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
                    // The queue releases its slot first, so a poster that finds the record free has
                    // room.
                    completions.skip();
                    Head::Success(shared.finish_plain(record, plain, length))
                }
                None => Head::Other,
            },
            Peek::Empty => Head::Empty,
            Peek::Other => Head::Other,
        }
    }

    /// Removes the first event, polling the device if necessary.
    ///
    /// Where the lock parks, QUEUE_EMPTY with a `polled` completion if its event must be made after
    /// the lock is released.
    pub(crate) fn dequeue<B, L>(
        &mut self,
        evd: EvdId,
        shared: &Shared<'_, B, L>,
        polled: &mut Option<Polled>,
    ) -> Result<Event>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        self.check(evd, shared.instance)?;
        self.check_no_waiter()?;
        if self.queued() != 0 {
            return self.take_queued(shared);
        }
        // Skips completions without an event (suppressed, stale). The limit returns control to the
        // caller if the device delivers nothing else.
        let most = if L::PARKS { 1 } else { self.depth };
        for _ in 0..most {
            let Some(queue) = &mut self.completions else {
                break;
            };
            if self.failure.is_some() {
                break;
            }
            // Matched in place, so that the completion is not copied.
            match &queue.poll() {
                Ok(Some(completion)) => {
                    let immediate = queue.immediate();
                    if let Some(event) = shared.plain_event_of(completion, immediate) {
                        return Ok(event);
                    }
                    if L::PARKS {
                        *polled = Some(Polled {
                            completion: *completion,
                            immediate,
                            bind: shared.claim_bind(completion),
                        });
                        return Err(Error::queue_empty());
                    }
                    if let Some(event) = shared.event_of(completion, immediate, false) {
                        return Ok(event);
                    }
                }
                Err(failure) => {
                    self.fail(*failure);
                    // The cause makes the caller report the failure, once.
                    return Err(Error::queue_empty().because(Cause::DeviceGone));
                }
                Ok(None) => {
                    if L::PARKS && queue.was_refused() {
                        self.pending.add(Pending::REFUSED);
                        return Err(Error::queue_empty().because(Cause::Busy));
                    }
                    break;
                }
            }
        }
        self.overflowed = false;
        Err(Error::queue_empty())
    }

    /// Removes the first queued event without polling the device.
    pub(crate) fn take_queued<B, L>(&mut self, shared: &Shared<'_, B, L>) -> Result<Event>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if self.ring_length != 0 {
            let front = self.ring_slot(&shared.events, 0);
            // Both counters wrap, so their difference is signed.
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

    /// Polls all completions of the device into the list of ready ones.
    pub(crate) fn poll<B, L>(&mut self, shared: &Shared<'_, B, L>, deferred: &mut Deferred)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let mut patience = self.depth.saturating_add(1);
        while patience != 0 && self.poll_next(shared, deferred) {
            patience = patience.wrapping_sub(1);
        }
    }

    /// Polls one completion into the list of ready ones; returns false if there is none.
    #[inline(always)]
    pub(crate) fn poll_next<B, L>(
        &mut self,
        shared: &Shared<'_, B, L>,
        deferred: &mut Deferred,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if self.failure.is_some() {
            return false;
        }
        let Some(completions) = &mut self.completions else {
            return false;
        };
        let Some(polled) = completions.poll().transpose() else {
            return false;
        };
        let immediate = completions.immediate();
        self.take_polled(polled, immediate, shared, deferred);
        true
    }

    /// Queues and announces a polled completion, or records and reports a failure.
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
                // Wakes a waiter: no further events arrive.
                if let Some(waker) = self.waker.take() {
                    deferred.wake(waker);
                }
            }
        }
    }

    /// Arms the completion queue if a waiter or an enabled notification object needs it.
    ///
    /// A waiter needs it while its condition does not hold. Completions that arrive before the
    /// arming are polled and announced; where the lock parks, by `run_deferred`.
    pub(crate) fn keep_armed<B, L>(&mut self, shared: &Shared<'_, B, L>, deferred: &mut Deferred)
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let notified = self.enabled && self.cno.is_some();
        let solicited_only = self.config == Some(EvdConfig::Solicited);
        let rounds = match self.waiter {
            Some(_) => ARMING_ROUNDS,
            // A consumer that drains the dispatcher after a notification does not arm it, so this
            // must not give up early. Until then at most `depth` completions can arrive.
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
                Armed::Missed if L::PARKS => {
                    return deferred.keep_pending(&mut self.pending, Pending::LOOK);
                }
                Armed::Missed => self.poll(shared, deferred),
            }
        }
        if self.armed {
            return;
        }
        // Completions keep arriving, so the consumer must poll again at once.
        if self.waiter.is_none() {
            self.announce(true, deferred);
        } else if let Some(waker) = self.waker.take() {
            deferred.wake(waker);
        }
    }

    /// Resets the configuration after the last endpoint stream; the next stream sets it.
    ///
    /// Returns true if the completion queue must be armed again.
    pub(crate) fn unfix_config<B, L>(&mut self, shared: &Shared<'_, B, L>) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        let narrow = self.config == Some(EvdConfig::Solicited);
        self.config = None;
        self.refresh();
        if !(narrow && self.armed) {
            return false;
        }
        if L::PARKS {
            self.pending.add(Pending::LOOK);
            return true;
        }
        self.arm_for_all(shared);
        false
    }

    /// Arms a queue, armed for solicited completions only, for all completions.
    ///
    /// The next stream may need all of them. No stream is attached, so completions still in the
    /// queue have no events and wake no waiter.
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
            // The next poll returns the failure again and reports it.
            self.failure = None;
            self.refresh();
        }
    }

    /// Clears the slot: drops all events, and frees slots and records.
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
        slot::give_back(&shared.events, self.ring_base, self.ring_capacity);
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

    /// Returns the next ready completion of a walk, and the index of its record.
    ///
    /// Leaves out those that were dequeued since the last step.
    fn next_ready<'r, B, L>(
        &self,
        walk: &mut ReadyWalk,
        shared: &'r Shared<'_, B, L>,
    ) -> Option<(u32, &'r RecordSlot)>
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        if walk.position.wrapping_sub(self.ready_left) as i32 <= 0 {
            walk.previous = NO_RECORD;
            walk.position = self.ready_left;
        }
        if walk.end.wrapping_sub(walk.position) as i32 <= 0 {
            return None;
        }
        let index = match shared.records.get(walk.previous as usize) {
            Some(previous) => previous.next(),
            None => self.ready_first,
        };
        Some((index, shared.records.get(index as usize)?))
    }

    /// Steps to the first ready completion of an endpoint slot, or to the end of the list.
    ///
    /// Returns true if the lock must be released before the next step.
    pub(crate) fn find_endpoint<B, L>(
        &self,
        endpoint: Index,
        walk: &mut ReadyWalk,
        shared: &Shared<'_, B, L>,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        while let Some((index, record)) = self.next_ready(walk, shared) {
            if shared.endpoint_of(record) == Some(endpoint) {
                break;
            }
            walk.step(index);
            if L::PARKS {
                return true;
            }
        }
        false
    }

    /// Drops the ready completions of one endpoint slot and frees their records.
    ///
    /// Returns true if the lock must be released before the next step. Needs the control lock.
    pub(crate) fn forget_endpoint<B, L>(
        &mut self,
        endpoint: Index,
        walk: &mut ReadyWalk,
        shared: &Shared<'_, B, L>,
    ) -> bool
    where
        B: crate::backend::Backend<CompletionQueue = C>,
        L: RawLock,
    {
        while let Some((index, record)) = self.next_ready(walk, shared) {
            if shared.endpoint_of(record) == Some(endpoint) {
                match shared.records.get(walk.previous as usize) {
                    Some(previous) => previous.set_next(record.next()),
                    None => self.ready_first = record.next(),
                }
                if self.ready_last == index {
                    self.ready_last = walk.previous;
                }
                let _event = shared.take_event(record, index);
                self.ready_length = self.ready_length.wrapping_sub(1);
                self.ready_joined = self.ready_joined.wrapping_sub(1);
                walk.end = walk.end.wrapping_sub(1);
                // Other events are ordered by the number of completions before them, so later ones
                // move up by one.
                for offset in 0..self.ring_length {
                    if let Some(slot) = self.ring_slot(&shared.events, offset)
                        && slot.after().wrapping_sub(walk.position) as i32 > 0
                    {
                        slot.set_after(slot.after().wrapping_sub(1));
                    }
                }
            } else {
                walk.step(index);
            }
            if L::PARKS {
                return true;
            }
        }
        false
    }
}
