//! Waits on an event dispatcher: polled, awaited or blocking.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::dequeue::failed;
use super::event::Event;
use super::queue::{EvdConfig, EvdQueue, EvdSlot, Head};
use super::{Deferred, OwnWait};
use crate::adapter::{EVENTS_PER_CALL, Ia};
use crate::backend::Backend;
use crate::error::{Cause, Error, ErrorKind, Parameter, Result, Subtype};
use crate::id::EvdId;
use crate::sync::RawLock;
use crate::time::{Instant, first};

/// Reason for the return of [`Wait::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum WakeReason {
    /// The waker was used, or the call should check again for another reason.
    Woken,
    /// The time `until` has passed.
    TimedOut,
    /// A signal arrived; the call fails with INTERRUPTED_CALL.
    Interrupted,
}

/// The sleep and the clock of a blocking call.
///
/// A thread parks; firmware waits for an interrupt.
pub trait Wait {
    /// Returns the current time, on the clock that [`Ia::progress`] gets.
    fn now(&mut self) -> Instant;

    /// Returns a waker that ends `wait`, even if it is used before `wait` is called.
    fn waker(&self) -> Waker;

    /// Starts a blocking call; earlier uses of the waker may be forgotten.
    ///
    /// The call checks all event sources before its first sleep.
    fn begin(&mut self) {}

    /// Sleeps until the waker is used or `until` has passed; may return early.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason;
}

/// Result of a successful wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Waited {
    /// The first event, removed from the queue.
    pub event: Event,
    /// Number of events left in the queue, at least the threshold minus 1.
    ///
    /// Excludes completions that are not yet polled from the device.
    pub more: u32,
}

/// Result of a wait that ended before its condition held; nothing was dequeued (EVW-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Expired {
    /// Number of events in the queue when the wait ended.
    ///
    /// Below the threshold, unless notifications end the wait (EVW-11) or the dispatcher ended it.
    pub queued: u32,
}

impl From<Expired> for Error {
    fn from(_: Expired) -> Self {
        Self::timeout_expired()
    }
}

/// A wait on a dispatcher, its only waiter until the wait is ready or dropped.
///
/// An event leaves the queue only with `Poll::Ready`, so dropping a wait loses none. The device
/// wakes the wait only through a caller of [`Ia::progress`], such as a thread that blocks in
/// [`Ia::cno_wait_until`] on a notification object of its own.
pub struct EvdWait<'a, 's, B: Backend, L: RawLock> {
    ia: &'a Ia<'s, B, L>,
    slot: &'a EvdSlot<B::CompletionQueue, L>,
    evd: EvdId,
    serial: u32,
    finished: bool,
}

impl<B: Backend, L: RawLock> fmt::Debug for EvdWait<'_, '_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvdWait")
            .field("evd", &self.evd)
            .finish_non_exhaustive()
    }
}

/// # Waiting for events
impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Starts a wait for at least `threshold` queued events on a dispatcher.
    ///
    /// During the wait, other waits and dequeues fail, and events do not trigger the notification
    /// object. If the dispatcher's endpoints complete UNSIGNALLED or SOLICITED_WAIT, only a
    /// notification ends the wait, or an event that was queued when it started.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_UNWAITABLE): the dispatcher is unwaitable.
    /// - INVALID_STATE (EVD_WAITER): the dispatcher has a waiter.
    /// - INVALID_PARAMETER (ARG3): `threshold` is below 1 or above the queue length.
    /// - INVALID_STATE (EVD_CONFIG_NOTIFY, EVD_CONFIG_SOLICITED): `threshold` is not 1, but only
    ///   notifications end a wait on this dispatcher.
    ///
    /// Spec: EVW-01..05, EVW-11
    #[inline]
    pub fn evd_wait(&self, evd: EvdId, threshold: i32) -> Result<EvdWait<'_, 's, B, L>> {
        let Some(slot) = self.shared.event_dispatchers.get(evd.index()) else {
            return Err(evd.refused(self.shared.instance));
        };
        let serial = self.begin_wait(evd, threshold)?;
        Ok(EvdWait {
            ia: self,
            slot,
            evd,
            serial,
            finished: false,
        })
    }

    /// Tries a wait for one event on the common way, without starting the wait.
    ///
    /// Returns the event if the queue is empty and the device has a successful transfer next. After
    /// `None`, call [`evd_wait`](Self::evd_wait). Does not call `progress`.
    ///
    /// Spec: EVW-01, EVW-05
    #[doc(hidden)]
    #[inline]
    pub fn evd_wait_now(&self, evd: EvdId, threshold: i32) -> Option<Waited> {
        let slot = self.shared.event_dispatchers.get(evd.index())?;
        let mut queue = slot.queue.lock_unparked()?;
        if queue.open == evd
            && queue.quick
            && threshold == 1
            && let Head::Success(completion) = queue.take_success(&self.shared)
        {
            return Some(Waited {
                event: Event::Dto(completion),
                more: 0,
            });
        }
        None
    }

    /// Checks and starts a wait; returns its serial number.
    #[inline(never)]
    fn begin_wait(&self, evd: EvdId, threshold: i32) -> Result<u32> {
        if L::PARKS {
            self.poll_at(evd.slot());
        }
        self.on_evd(evd, |queue, deferred| {
            if !queue.waitable {
                return Err(Error::invalid_state(Subtype::InvalidStateEvdUnwaitable));
            }
            queue.check_no_waiter()?;
            let invalid = |cause| {
                Error::invalid_argument(3)
                    .about(Parameter::Threshold)
                    .because(cause)
            };
            let threshold = u32::try_from(threshold).map_err(|_| invalid(Cause::NegativeCount))?;
            if threshold == 0 {
                return Err(invalid(Cause::ZeroCount));
            }
            if threshold > queue.queue_length {
                return Err(invalid(Cause::AboveLimit));
            }
            let config = match queue.config {
                Some(EvdConfig::Notify) => Some(Subtype::InvalidStateEvdConfigNotify),
                Some(EvdConfig::Solicited) => Some(Subtype::InvalidStateEvdConfigSolicited),
                None | Some(EvdConfig::Threshold) => None,
            };
            if let Some(config) = config
                && threshold != 1
            {
                return Err(Error::invalid_state(config).because(Cause::ThresholdNotAllowed));
            }
            let serial = queue.begin_wait(threshold);
            if !L::PARKS {
                queue.poll(&self.shared, deferred);
            }
            queue.notify_waiter_of_queued();
            Ok(serial)
        })
    }

    /// Blocks until at least `threshold` events are queued or the deadline has passed.
    ///
    /// `None` waits forever; with a deadline in the past, the call polls without sleeping. Unless
    /// the adapter is quiet, the call runs `progress`. [`evd_wait_counted`](Self::evd_wait_counted)
    /// also returns the number of events queued at the deadline.
    ///
    /// # Errors
    /// - Those of `evd_wait`.
    /// - INVALID_STATE (EVD_UNWAITABLE): the dispatcher became unwaitable during the wait.
    /// - INVALID_STATE (no subtype): events were lost and fewer than `threshold` are left.
    /// - TIMEOUT_EXPIRED: the deadline has passed; no event was dequeued.
    /// - INTERRUPTED_CALL: `wait` was interrupted; no event was dequeued.
    /// - ABORT: the dispatcher was destroyed with its adapter.
    ///
    /// Spec: EVW-01..14
    #[inline]
    pub fn evd_wait_until<W: Wait + ?Sized>(
        &self,
        evd: EvdId,
        threshold: i32,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<Waited> {
        Ok(self.evd_wait_counted(evd, threshold, deadline, wait)??)
    }

    /// As [`evd_wait_until`](Self::evd_wait_until); an expired wait returns the number of queued
    /// events.
    ///
    /// # Errors
    /// - Those of `evd_wait_until`, except TIMEOUT_EXPIRED.
    /// - [`Expired`], in the inner result: the deadline has passed; no event was dequeued.
    ///
    /// Spec: EVW-01..14
    #[inline]
    pub fn evd_wait_counted<W: Wait + ?Sized>(
        &self,
        evd: EvdId,
        threshold: i32,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<core::result::Result<Waited, Expired>> {
        // Unless the adapter is quiet, the slow way calls `progress`, so connections advance even
        // while completions keep arriving.
        if self.is_quiet()
            && let Some(waited) = self.evd_wait_now(evd, threshold)
        {
            return Ok(Ok(waited));
        }
        self.evd_wait_slow(evd, threshold, deadline, wait)
    }

    /// Starts a wait and sleeps until it ends.
    #[cold]
    #[inline(never)]
    fn evd_wait_slow<W: Wait + ?Sized>(
        &self,
        evd: EvdId,
        threshold: i32,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<core::result::Result<Waited, Expired>> {
        let mut pending = self.evd_wait(evd, threshold)?;
        match pending.sleep_until(deadline, wait) {
            Some(outcome) => outcome.map(Ok),
            None => Ok(pending.expire()),
        }
    }

    /// Calls `poll` until it is ready; returns `None` if the deadline passes first.
    ///
    /// `own` is the dispatcher wait that `poll` polls, if any. Of all threads that block here, one
    /// drives: it calls `progress`. The events that it handles wake the others. When it leaves, it
    /// wakes them too, and one takes its place.
    pub(super) fn sleep_until<W: Wait + ?Sized, R>(
        &self,
        own: Option<OwnWait>,
        deadline: Option<Instant>,
        wait: &mut W,
        mut poll: impl FnMut(&Waker) -> Poll<Result<R>>,
    ) -> Option<Result<R>> {
        wait.begin();
        let waker = wait.waker();
        let mut part = self.join_drivers();
        let mut has_slept = false;
        loop {
            if B::EVENT_DRIVEN && has_slept {
                // Most wake-ups bring this wait's own event and no other. If this thread drives,
                // dropping `part` wakes the others. The backend ignores the time.
                self.handle_next(Instant::ZERO, own);
                if self.is_quiet()
                    && let Poll::Ready(outcome) = poll(&waker)
                {
                    return Some(outcome);
                }
            }
            // Stores the driver's waker before `progress` checks the device, so an interrupt after
            // the check finds it.
            let mut drives = part.try_drive(&waker);
            let handled = if B::EVENT_DRIVEN && !has_slept && self.is_quiet() {
                0
            } else {
                self.progress(wait.now())
            };
            let polled = poll(&waker);
            if polled.is_ready() || deadline.is_some_and(|deadline| deadline <= wait.now()) {
                if handled >= EVENTS_PER_CALL {
                    // `progress` stopped at its limit, and no interrupt announces the rest.
                    self.wake_progress();
                }
                return match polled {
                    Poll::Ready(outcome) => Some(outcome),
                    Poll::Pending => None,
                };
            }
            if handled != 0 {
                continue;
            }
            if !drives {
                // `poll` has stored the waker, so a driver that leaves from now on wakes this
                // thread. If it left before, this thread replaces it and calls `progress` again.
                drives = part.try_drive(&waker);
                if drives {
                    continue;
                }
            }
            let device = if drives { self.next_deadline() } else { None };
            if wait.wait(first(deadline, device)) == WakeReason::Interrupted {
                return Some(Err(Error::new(
                    ErrorKind::InterruptedCall,
                    Subtype::NoSubtype,
                )
                .because(Cause::Interrupted)));
            }
            has_slept = true;
        }
    }
}

impl<B: Backend, L: RawLock> EvdWait<'_, '_, B, L> {
    /// Removes the first event if the wait's condition holds, else stores `waker`.
    ///
    /// `waker` is woken when the condition may hold. `Poll::Ready` ends the wait.
    ///
    /// # Errors
    /// - INVALID_STATE (EVD_UNWAITABLE): the dispatcher became unwaitable during the wait.
    /// - INVALID_STATE (no subtype): events were lost and fewer than the threshold are left.
    /// - ABORT: the dispatcher was destroyed, or the wait has ended.
    ///
    /// Spec: EVW-01, EVW-05, EVW-07, EVW-09, EVW-10, EVW-11
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<Waited>> {
        let shared = &self.ia.shared;
        if self.finished {
            return Poll::Ready(Err(Error::abort()));
        }
        let mut deferred = Deferred::default();
        // Cloning or dropping a waker runs the consumer's code, so both happen outside the lock.
        let mut fresh = Some(waker.clone());
        let mut former = None;
        if L::PARKS {
            self.ia.poll_slot(self.slot, &mut deferred);
        }
        let mut poll = |queue: &mut EvdQueue<B::CompletionQueue>| {
            if queue.id != self.evd {
                return Poll::Ready(Err(Error::abort()));
            }
            if !queue.is_waiting(self.serial) {
                return Poll::Ready(Err(Error::invalid_state(
                    Subtype::InvalidStateEvdUnwaitable,
                )));
            }
            former = queue.change_waker(None);
            if !L::PARKS {
                queue.poll(shared, &mut deferred);
            }
            if !queue.is_due() && !queue.is_in_error() {
                // The waker is stored before the arming: a completion after the arming must find
                // it.
                queue.change_waker(fresh.take());
                let list = &shared.waited_dispatchers;
                list.enter(self.evd.slot(), &self.slot.waits);
                queue.keep_armed(shared, &mut deferred);
                if !queue.is_due() && !queue.is_in_error() {
                    return Poll::Pending;
                }
            }
            let outcome = if queue.is_due() {
                queue.take_queued(shared).map(|event| Waited {
                    event,
                    more: queue.queued(),
                })
            } else {
                Err(Error::invalid_state(Subtype::NoSubtype).because(queue.loss()))
            };
            fresh = queue.end_wait();
            queue.keep_armed(shared, &mut deferred);
            Poll::Ready(outcome)
        };
        // A dispatcher with a waiter is never parked.
        let outcome = match self.slot.queue.lock_unparked() {
            Some(mut queue) => poll(&mut queue),
            None => Poll::Ready(Err(Error::invalid_state(
                Subtype::InvalidStateEvdUnwaitable,
            ))),
        };
        self.finished = outcome.is_ready();
        self.ia.run_deferred(&mut deferred);
        if let Poll::Ready(Ok(Waited { event, .. })) = &outcome
            && failed(event)
        {
            self.ia.break_connection_after(event);
        }
        outcome
    }

    /// Blocks until the wait ends; returns `None` if the deadline passes first.
    ///
    /// After `None` the wait stays the dispatcher's waiter: it may sleep again or
    /// [`expire`](Self::expire). Calls `progress` itself.
    ///
    /// # Errors
    /// Those of `poll`, and INTERRUPTED_CALL: `wait` was interrupted.
    ///
    /// Spec: EVW-01, EVW-05, EVW-06
    pub fn sleep_until<W: Wait + ?Sized>(
        &mut self,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Option<Result<Waited>> {
        let own = OwnWait {
            evd: self.evd.slot(),
            serial: self.serial,
        };
        let ia = self.ia;
        ia.sleep_until(Some(own), deadline, wait, |waker| self.poll(waker))
    }

    /// Ends the wait after its timeout; takes the first event if the condition holds now.
    ///
    /// Polls the device once more before it tests the condition.
    ///
    /// # Errors
    /// [`Expired`]: the condition does not hold; no event was dequeued.
    ///
    /// Spec: EVW-06, EVW-07
    pub fn expire(mut self) -> core::result::Result<Waited, Expired> {
        let shared = &self.ia.shared;
        let mut deferred = Deferred::default();
        let mut former = None;
        if L::PARKS {
            self.ia.poll_slot(self.slot, &mut deferred);
        }
        let mut expire = |queue: &mut EvdQueue<B::CompletionQueue>| {
            if self.finished || queue.id != self.evd {
                return Err(Expired { queued: 0 });
            }
            if !L::PARKS {
                queue.poll(shared, &mut deferred);
            }
            let waits = queue.is_waiting(self.serial);
            // The count and the end of the wait are atomic: no event arrives between them.
            let taken = (waits && queue.is_due()).then(|| queue.take_queued(shared));
            let queued = queue.queued();
            if waits {
                former = queue.end_wait();
                queue.keep_armed(shared, &mut deferred);
            }
            match taken {
                Some(Ok(event)) => Ok(Waited {
                    event,
                    more: queued,
                }),
                _ => Err(Expired { queued }),
            }
        };
        let outcome = match self.slot.queue.lock_unparked() {
            Some(mut queue) => expire(&mut queue),
            // As in `poll`: the wait has ended.
            None => Err(Expired { queued: 0 }),
        };
        self.finished = true;
        self.ia.run_deferred(&mut deferred);
        if let Ok(Waited { event, .. }) = &outcome
            && failed(event)
        {
            self.ia.break_connection_after(event);
        }
        drop(former);
        outcome
    }
}

impl<B: Backend, L: RawLock> Future for EvdWait<'_, '_, B, L> {
    type Output = Result<Waited>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        EvdWait::poll(self.get_mut(), context.waker())
    }
}

impl<B: Backend, L: RawLock> Drop for EvdWait<'_, '_, B, L> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.give_up();
        }
    }
}

impl<B: Backend, L: RawLock> EvdWait<'_, '_, B, L> {
    #[inline(never)]
    fn give_up(&self) {
        // Fails only if the dispatcher is gone, with its waiter.
        let _waker = self.ia.on_evd(self.evd, |queue, deferred| {
            if !queue.is_waiting(self.serial) {
                return Ok(None);
            }
            let waker = queue.end_wait();
            queue.keep_armed(&self.ia.shared, deferred);
            Ok(waker)
        });
    }
}
