//! Waiting on an event dispatcher: polled, awaited or blocking.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::dequeue::failed;
use super::event::Event;
use super::queue::{EvdConfig, EvdSlot, Head};
use super::{Deferred, OwnWait};
use crate::backend::Backend;
use crate::error::{Cause, Error, ErrorKind, Result, Subtype};
use crate::ia::{EVENTS_PER_CALL, Ia};
use crate::id::EvdId;
use crate::sync::RawLock;
use crate::time::{Instant, first};

/// Why a `Wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum WakeReason {
    /// The waker was used, or something else makes it worth looking again.
    Woken,
    /// The moment has come.
    TimedOut,
    /// A signal or the like: the call ends with INTERRUPTED_CALL.
    Interrupted,
}

/// How a blocking call sleeps, and what time it is: threads park, firmware waits for an interrupt.
pub trait Wait {
    /// The time now, on the clock that `Ia::progress` is told of.
    fn now(&mut self) -> Instant;

    /// A waker that ends `wait`, also if it is used before `wait` is called.
    fn waker(&self) -> Waker;

    /// A call begins that looks at everything before it sleeps: what used the waker before need not end `wait` any more.
    fn begin(&mut self) {}

    /// Sleeps until the waker is used or the moment has come; returning early is harmless.
    fn wait(&mut self, until: Option<Instant>) -> WakeReason;
}

/// What a successful wait returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Waited {
    /// The first event; it is not in the queue any more.
    pub event: Event,
    /// Events left in the queue, at least the threshold less one; completions that the device was
    /// not asked for yet may come on top.
    pub more: u32,
}

/// A wait ended before its condition held; nothing was dequeued (EVW-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Expired {
    /// Events queued when the wait ended. Fewer than the threshold, unless notifications decide
    /// (EVW-11), or the dispatcher ended the wait itself.
    pub queued: u32,
}

impl From<Expired> for Error {
    fn from(_: Expired) -> Self {
        Self::timeout_expired()
    }
}

/// A wait under way: the one waiter of its dispatcher until it returns or is dropped.
///
/// An event leaves the dispatcher only with `Poll::Ready`, so dropping a wait loses none. Nothing
/// wakes it unless somebody calls [`Ia::progress`] when the device has something to say: a thread
/// that blocks in [`Ia::cno_wait_until`] on a notification object of its own does.
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

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Begins to wait until at least `threshold` events are queued on a dispatcher.
    ///
    /// While the wait lasts other waits and dequeues are refused, and the notification object is
    /// not notified. On a dispatcher whose endpoints complete UNSIGNALLED or SOLICITED_WAIT only
    /// notifications end it; events that are queued when it begins count in any case.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_UNWAITABLE): waits are not allowed. (EVD_WAITER): somebody waits already.
    /// - INVALID_PARAMETER (ARG3): `threshold` below 1, or above the length of the queue.
    /// - INVALID_STATE (EVD_CONFIG_NOTIFY, EVD_CONFIG_SOLICITED): a threshold other than 1 where
    ///   notifications decide.
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

    /// Returns what a wait for one event returns at once if the device has the success of a transfer.
    ///
    /// The common way of a wait. `None`: begin one, which also tells if it is refused. Does not call
    /// `progress`.
    ///
    /// Spec: EVW-01, EVW-05
    #[inline]
    pub fn evd_wait_now(&self, evd: EvdId, threshold: i32) -> Option<Waited> {
        let slot = self.shared.event_dispatchers.get(evd.index())?;
        let mut queue = slot.queue.lock();
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

    /// Begins a wait, if it may begin; returns its serial number.
    #[inline(never)]
    fn begin_wait(&self, evd: EvdId, threshold: i32) -> Result<u32> {
        self.on_evd(evd, |queue, deferred| {
            if !queue.waitable {
                return Err(Error::invalid_state(Subtype::InvalidStateEvdUnwaitable));
            }
            queue.check_no_waiter()?;
            let invalid = |cause| Error::invalid_argument(3).because(cause);
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
            queue.poll(&self.shared, deferred);
            queue.notify_waiter_of_queued();
            Ok(serial)
        })
    }

    /// Waits until at least `threshold` events are queued, or the deadline has passed; a deadline
    /// that has passed already makes it a poll, none at all waits forever.
    ///
    /// Calls `progress` itself. [`evd_wait_counted`](Self::evd_wait_counted) tells as well how many
    /// events were queued when the time ran out.
    ///
    /// # Errors
    /// - As `evd_wait`.
    /// - INVALID_STATE (EVD_UNWAITABLE): the dispatcher was made unwaitable meanwhile. (no subtype):
    ///   events were lost, and those that are left are fewer than `threshold`.
    /// - TIMEOUT_EXPIRED: the deadline has passed; nothing was dequeued.
    /// - INTERRUPTED_CALL: `wait` was interrupted; nothing was dequeued.
    /// - ABORT: the dispatcher was destroyed with its adapter.
    ///
    /// Spec: EVW-01..14
    #[inline]
    pub fn evd_wait_until<W: Wait>(
        &self,
        evd: EvdId,
        threshold: i32,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<Waited> {
        Ok(self.evd_wait_counted(evd, threshold, deadline, wait)??)
    }

    /// Waits as [`evd_wait_until`](Self::evd_wait_until); an expired wait tells how many events were queued.
    ///
    /// # Errors
    /// - As `evd_wait_until`, but for TIMEOUT_EXPIRED.
    /// - [`Expired`], inside: the deadline has passed; nothing was dequeued.
    ///
    /// Spec: EVW-01..14
    #[inline]
    pub fn evd_wait_counted<W: Wait>(
        &self,
        evd: EvdId,
        threshold: i32,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<core::result::Result<Waited, Expired>> {
        // Else connections have to go on even if there is always a completion.
        if self.is_quiet()
            && let Some(waited) = self.evd_wait_now(evd, threshold)
        {
            return Ok(Ok(waited));
        }
        self.evd_wait_slow(evd, threshold, deadline, wait)
    }

    /// Begins a wait and sleeps until it is over.
    #[cold]
    #[inline(never)]
    fn evd_wait_slow<W: Wait>(
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

    /// Calls `poll` until it is ready or the deadline has passed (`None`). `own` is the wait on a dispatcher that it is, if it is one.
    ///
    /// Of all that block here at a time one drives `progress`; the others are woken by what it takes in,
    /// or when it leaves.
    pub(super) fn sleep_until<W: Wait, R>(
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
                // What wakes is most often what is waited for, alone. Whoever else relies on this wait hears that it leaves.
                self.handle_next(Instant::ZERO, own);
                if self.is_quiet()
                    && let Poll::Ready(outcome) = poll(&waker)
                {
                    return Some(outcome);
                }
            }
            // Before the look at the device, so an interrupt after it is not missed.
            let mut drives = part.try_drive(&waker);
            let handled = if B::EVENT_DRIVEN && !has_slept && self.is_quiet() {
                0
            } else {
                self.progress(wait.now())
            };
            let polled = poll(&waker);
            if polled.is_ready() || deadline.is_some_and(|deadline| deadline <= wait.now()) {
                if handled >= EVENTS_PER_CALL {
                    // There may be more, of which nobody else was told.
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
                // The waker is with the object by now, so a driver that leaves from here on wakes it. One that
                // has left is replaced, which takes another look at the device.
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
    /// Takes the first event if the condition of the wait holds; otherwise `waker` is woken when it
    /// may hold. Once it was ready the wait is over.
    ///
    /// # Errors
    /// - INVALID_STATE (EVD_UNWAITABLE): the dispatcher was made unwaitable. (no subtype): events were
    ///   lost, and those that are left are fewer than the threshold.
    /// - ABORT: the dispatcher was destroyed, or the wait is over.
    ///
    /// Spec: EVW-01, EVW-05, EVW-07, EVW-09, EVW-10, EVW-11
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<Waited>> {
        let shared = &self.ia.shared;
        if self.finished {
            return Poll::Ready(Err(Error::abort()));
        }
        let mut deferred = Deferred::default();
        // Wakers are cloned and dropped outside of the lock: both run the consumer's code.
        let mut fresh = Some(waker.clone());
        let mut former = None;
        let outcome = self.slot.queue.with(|queue| {
            if queue.id != self.evd {
                return Poll::Ready(Err(Error::abort()));
            }
            if !queue.is_waiting(self.serial) {
                return Poll::Ready(Err(Error::invalid_state(
                    Subtype::InvalidStateEvdUnwaitable,
                )));
            }
            former = queue.change_waker(None);
            queue.poll(shared, &mut deferred);
            if !queue.is_due() && !queue.is_in_error() {
                // First the waker, then the arming: what arrives from here on wakes it.
                queue.change_waker(fresh.take());
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
        });
        self.finished = outcome.is_ready();
        self.ia.run_deferred(&mut deferred);
        if let Poll::Ready(Ok(Waited { event, .. })) = &outcome
            && failed(event)
        {
            self.ia.break_connection_after(event);
        }
        outcome
    }

    /// Sleeps until the wait is over or the deadline has passed (`None`), after which it may sleep again, or
    /// [`expire`](Self::expire). It stays the one waiter in between. Calls `progress` itself.
    ///
    /// # Errors
    /// As `poll`, and INTERRUPTED_CALL: `wait` was interrupted.
    ///
    /// Spec: EVW-01, EVW-05, EVW-06
    pub fn sleep_until<W: Wait>(
        &mut self,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Option<Result<Waited>> {
        let own = OwnWait {
            evd: self.evd.index() as u16,
            serial: self.serial,
        };
        let ia = self.ia;
        ia.sleep_until(Some(own), deadline, wait, |waker| self.poll(waker))
    }

    /// Ends the wait because its time ran out; takes the first event if the condition holds by now.
    ///
    /// # Errors
    /// - [`Expired`]: the condition does not hold; nothing was dequeued.
    ///
    /// Spec: EVW-06, EVW-07
    pub fn expire(mut self) -> core::result::Result<Waited, Expired> {
        let shared = &self.ia.shared;
        let mut deferred = Deferred::default();
        let mut former = None;
        let outcome = self.slot.queue.with(|queue| {
            if self.finished || queue.id != self.evd {
                return Err(Expired { queued: 0 });
            }
            queue.poll(shared, &mut deferred);
            let waits = queue.is_waiting(self.serial);
            // Count and end of the wait are one step: no event comes in between.
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
        });
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
        // A dispatcher that is gone has no waiter to forget.
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
