//! Taking events without waiting, and posting software events.

use super::event::Event;
use super::queue::{EvdQueue, Head};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result};
use crate::flags::{DtoStatus, EvdFlags};
use crate::ia::Ia;
use crate::id::EvdId;
use crate::sync::{Guard, RawLock};

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Removes and returns the first event of a dispatcher, without waiting.
    ///
    /// Events of one stream come in their order, each once. Works whether or not the dispatcher is
    /// enabled or waitable.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_WAITER): somebody waits on it.
    /// - QUEUE_EMPTY: no event is there.
    ///
    /// Spec: EVG-01..04, EVW-09
    #[inline]
    pub fn evd_dequeue(&self, evd: EvdId) -> Result<Event> {
        let Some(slot) = self.shared.event_dispatchers.get(evd.index()) else {
            return Err(evd.refused(self.shared.instance));
        };
        let mut queue = slot.queue.lock();
        if !cfg!(feature = "compact") && queue.open == evd {
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

    /// Takes any event: a queued one, a failure, a success that makes no event or another one.
    #[cold]
    #[inline(never)]
    fn dequeue_slow(
        &self,
        mut queue: Guard<'_, L, EvdQueue<B::CompletionQueue>>,
        evd: EvdId,
    ) -> Result<Event> {
        let outcome = queue.dequeue(evd, &self.shared);
        drop(queue);
        match &outcome {
            Ok(event) if failed(event) => self.break_connection_after(event),
            Err(error) if error.cause() == Cause::DeviceGone => return Err(self.queue_failed(evd)),
            _ => {}
        }
        outcome
    }

    /// Queues a software event with the consumer's value; nobody looks at what it may point to.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG1): the dispatcher was made without the software stream.
    /// - QUEUE_FULL: as many events as it holds are queued; this one was not, and that is all.
    ///
    /// Spec: EVS-01..04
    #[inline]
    pub fn evd_post_se(&self, evd: EvdId, pointer: u64) -> Result<()> {
        if !cfg!(feature = "compact")
            && let Some(slot) = self.shared.event_dispatchers.get(evd.index())
        {
            let mut queue = slot.queue.lock();
            // Nobody is to be told, and no completion can be ahead.
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

    /// Posts a software event that ends a wait or is a notification, or finds out why it is refused.
    #[inline(never)]
    fn evd_post_se_slow(&self, evd: EvdId, pointer: u64) -> Result<()> {
        self.on_evd(evd, |queue, deferred| {
            if !queue.flags.contains(EvdFlags::SOFTWARE) {
                return Err(Error::invalid_argument(1).because(Cause::FlagNotAllowed));
            }
            if queue.push(&Event::Software { pointer }, &self.shared, deferred) {
                Ok(())
            } else {
                Err(Error::queue_full().because(Cause::QueueFull))
            }
        })
    }

    /// A failed transfer or bind breaks the connection it ran on (DTO-12, RMB-22); a flushed one had
    /// none any more. No lock may be held.
    #[cold]
    pub(super) fn break_connection_after(&self, event: &Event) {
        match event {
            Event::Dto(completion) if breaks_connection(completion.status) => {
                self.connection_failed(completion.ep);
            }
            Event::RmrBind(completion) if breaks_connection(completion.status) => {
                self.connection_failed(completion.ep);
            }
            Event::Extended(completion) if breaks_connection(completion.status) => {
                self.connection_failed(completion.ep);
            }
            _ => {}
        }
    }

    /// A dequeue was the one that found the completion queue failed: reports it.
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
            // Freed meanwhile.
            Err(error) => error,
        }
    }
}

/// Whether an event tells of something that did not succeed.
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
