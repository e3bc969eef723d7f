//! Dequeuing events without waiting, and posting software events.

use super::Deferred;
use super::completion::Polled;
use super::event::Event;
use super::queue::{EvdQueue, Head};
use crate::adapter::Ia;
use crate::backend::Backend;
use crate::error::{Cause, Error, Parameter, Result};
use crate::flags::{DtoStatus, EvdFlags};
use crate::id::EvdId;
use crate::sync::{Guard, RawLock};

/// # Events
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Removes and returns the first event of a dispatcher, without waiting.
    ///
    /// Events of one stream come in order, each once. The dispatcher may be disabled or unwaitable.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_WAITER): the dispatcher has a waiter.
    /// - QUEUE_EMPTY: no event is queued.
    ///
    /// Spec: EVG-01..04, EVW-09
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd, local, remote) = (&a.ia, a.ep, a.evd, a.local(5), b.remote(5));
    /// for cookie in 0..3 {
    ///     ia.post_rdma_write(ep, &[local], cookie, &remote, CompletionFlags::empty())?;
    /// }
    /// fabric.run_until_idle(100);
    /// let mut done = 0;
    /// while let Ok(Event::Dto(completion)) = ia.evd_dequeue(evd) {
    ///     assert_eq!((completion.cookie, completion.status), (done, DtoStatus::Success));
    ///     done += 1;
    /// }
    /// assert_eq!(done, 3);
    /// # Ok(()) }) }
    /// ```
    #[inline]
    pub fn evd_dequeue(&self, evd: EvdId) -> Result<Event> {
        if cfg!(feature = "compact") {
            return self.dequeue_compact(evd);
        }
        let mut queue = self.lock_dispatcher(evd)?;
        if queue.open == evd {
            match queue.take_success(&self.shared) {
                Head::Success(completion) => return Ok(Event::Dto(completion)),
                Head::Empty => {
                    queue.overflowed = false;
                    return Err(Error::queue_empty());
                }
                Head::Other => {}
            }
        }
        self.dequeue_slow(queue, evd)
    }

    /// Locks a dispatcher; QUEUE_EMPTY if it is parked. Does not check that it is live.
    #[inline(always)]
    fn lock_dispatcher(&self, evd: EvdId) -> Result<Guard<'_, L, EvdQueue<B::CompletionQueue>>> {
        let Some(slot) = self.shared.event_dispatchers.get(evd.index()) else {
            return Err(evd.refused(self.shared.instance));
        };
        slot.queue.lock_unparked().ok_or(Error::queue_empty())
    }

    /// Dequeues on the slow way only. Its frame is made before the lock masks interrupts.
    #[inline(never)]
    fn dequeue_compact(&self, evd: EvdId) -> Result<Event> {
        self.dequeue_slow(self.lock_dispatcher(evd)?, evd)
    }

    /// Dequeues on the slow way: any event, a failure, completions without an event.
    #[cfg_attr(not(feature = "compact"), cold, inline(never))]
    #[cfg_attr(feature = "compact", inline(always))]
    fn dequeue_slow<'a>(
        &'a self,
        mut queue: Guard<'a, L, EvdQueue<B::CompletionQueue>>,
        evd: EvdId,
    ) -> Result<Event> {
        let mut patience = queue.depth;
        let outcome = loop {
            let mut polled = None;
            let outcome = queue.dequeue(evd, &self.shared, &mut polled);
            drop(queue);
            let Some(polled) = polled else {
                break outcome;
            };
            if let Some(event) = self.event_of_polled(evd, &polled) {
                break Ok(event);
            }
            // It has no event. The next one is polled in a section of its own.
            match self.lock_dispatcher(evd) {
                Ok(next) if patience != 0 => queue = next,
                _ => break outcome,
            }
            patience = patience.wrapping_sub(1);
        };
        match &outcome {
            Ok(event) if failed(event) => self.break_connection_after(event),
            Err(error) if error.cause() == Cause::DeviceGone => return Err(self.queue_failed(evd)),
            Err(error) if L::PARKS && error.cause() == Cause::Busy => {
                self.note_missed();
                // A call of the data path that was interrupted looks at nothing at its end.
                self.interrupt_handle().notify();
                return Err(Error::queue_empty());
            }
            _ => {}
        }
        outcome
    }

    /// Returns the event of a completion that was polled before the lock was released, if any.
    fn event_of_polled(&self, evd: EvdId, polled: &Polled) -> Option<Event> {
        let Polled {
            completion,
            immediate,
            bind,
        } = polled;
        if let Some(bind) = bind {
            self.shared.bind_completed(*bind, completion.status);
        }
        let slot = self.shared.event_dispatchers.get(evd.index())?;
        let event = || self.shared.event_of(completion, *immediate, bind.is_some());
        slot.queue.while_locked(event)
    }

    /// Queues a software event with the consumer's value, which the core never dereferences.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG1): the dispatcher lacks the software stream.
    /// - QUEUE_FULL: the queue is full; the event is not queued, and no overflow is reported.
    ///
    /// Spec: EVS-01..04
    #[inline]
    pub fn evd_post_se(&self, evd: EvdId, pointer: u64) -> Result<()> {
        if !cfg!(feature = "compact")
            && !L::PARKS
            && let Some(slot) = self.shared.event_dispatchers.get(evd.index())
        {
            let mut queue = slot.queue.lock();
            // The event ends no wait, notifies no object and has no completions before it.
            if queue.open == evd
                && queue.cno.is_none()
                && queue.completions.is_none()
                && queue.flags.contains(EvdFlags::SOFTWARE)
            {
                return if queue.append(&Event::Software { pointer }, &self.shared.events) {
                    Ok(())
                } else {
                    Err(Error::queue_full().because(Cause::QueueFull))
                };
            }
        }
        self.evd_post_se_slow(evd, pointer)
    }

    /// Posts a software event that ends a wait or notifies, or returns the error.
    #[inline(never)]
    fn evd_post_se_slow(&self, evd: EvdId, pointer: u64) -> Result<()> {
        if L::PARKS
            && let Some(slot) = self.shared.event_dispatchers.get(evd.index())
        {
            let mut deferred = Deferred::default();
            self.poll_slot(slot, &mut deferred);
            self.run_deferred(&mut deferred);
        }
        self.on_evd(evd, |queue, deferred| {
            if !queue.flags.contains(EvdFlags::SOFTWARE) {
                return Err(Error::invalid_argument(1)
                    .about(Parameter::Evd)
                    .because(Cause::FlagNotAllowed));
            }
            if queue.push(&Event::Software { pointer }, &self.shared, deferred) {
                Ok(())
            } else {
                Err(Error::queue_full().because(Cause::QueueFull))
            }
        })
    }

    /// Breaks the connection of a failed transfer or bind (DTO-12, RMB-22).
    ///
    /// A flushed one has no connection any longer. No lock may be held. Where the lock parks, the
    /// next `progress` breaks it: the caller may be an interrupt handler.
    #[cold]
    pub(super) fn break_connection_after(&self, event: &Event) {
        let (ep, status) = match event {
            Event::Dto(completion) => (completion.ep, completion.status),
            Event::RmrBind(completion) => (completion.ep, completion.status),
            Event::Extended(completion) => (completion.ep, completion.status),
            _ => return,
        };
        if !breaks_connection(status) {
            return;
        }
        if L::PARKS {
            self.note_failed_connection(ep);
        } else {
            self.connection_failed(ep);
        }
    }

    /// Reports a failure of the completion queue that a dequeue found.
    #[cold]
    fn queue_failed(&self, evd: EvdId) -> Error {
        let reported = self.on_evd(evd, |queue, deferred| {
            if let Some(failure) = queue.failure {
                deferred.failure(evd, failure, &mut queue.pending);
            }
            Ok(())
        });
        match reported {
            Ok(()) => Error::queue_empty(),
            // The dispatcher was freed meanwhile.
            Err(error) => error,
        }
    }
}

/// Returns true for a completion that is not a success.
#[inline]
pub(super) fn failed(event: &Event) -> bool {
    match event {
        Event::Dto(completion) => completion.status != DtoStatus::Success,
        Event::RmrBind(completion) => completion.status != DtoStatus::Success,
        Event::Extended(completion) => completion.status != DtoStatus::Success,
        _ => false,
    }
}

fn breaks_connection(status: DtoStatus) -> bool {
    !matches!(status, DtoStatus::Success | DtoStatus::Flushed)
}
