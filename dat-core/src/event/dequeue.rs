//! Taking events without waiting, and posting software events.

use super::event::{DtoCompletion, Event};
use super::queue::{Asked, EvdQueue, EvdSlot};
use crate::backend::{Backend, Completion};
use crate::error::{Cause, Error, Result};
use crate::flags::{DtoStatus, EvdFlags};
use crate::ia::Ia;
use crate::id::EvdId;
use crate::sync::{Guard, RawLock};

/// The queue of a dispatcher, locked.
pub(super) type HeldQueue<'a, B, L> = Guard<'a, L, EvdQueue<<B as Backend>::CompletionQueue>>;

/// Takes what a dequeue finds.
pub trait EventSink {
    /// What the dequeue returns.
    type Output;

    /// Takes a transfer that the device said to have succeeded, from the registers in which it was found.
    fn transfer(self, completion: DtoCompletion) -> Self::Output;

    /// Takes that there is nothing, not even at the device.
    fn nothing(self) -> Self::Output
    where
        Self: Sized,
    {
        self.otherwise(Err(Error::queue_empty()))
    }

    /// Takes whatever else comes of a dequeue: other transfers, other events, errors.
    fn otherwise(self, found: Result<Event>) -> Self::Output;
}

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
        match slot.queue.try_hold() {
            Some(queue) => self.dequeue_held(queue, evd),
            None => self.dequeue_contended(slot, evd),
        }
    }

    /// As `evd_dequeue`, for callers that turn events into a form of their own. It becomes a part of its caller.
    ///
    /// # Errors
    /// None of its own: those of `evd_dequeue` come to the sink.
    ///
    /// Spec: EVG-01..04, EVW-09
    #[inline(always)]
    pub fn evd_dequeue_into<S: EventSink>(&self, evd: EvdId, sink: S) -> S::Output {
        let slot = self.shared.event_dispatchers.get(evd.index());
        let Some(mut queue) = slot.and_then(|slot| slot.queue.try_hold()) else {
            return sink.otherwise(self.evd_dequeue(evd));
        };
        if queue.open != evd {
            return sink.otherwise(self.dequeue_otherwise(queue, evd));
        }
        match queue.look(&self.shared) {
            Some(Asked::Plain(completion)) => {
                // The sink is the caller's: it may use this dispatcher.
                drop(queue);
                sink.transfer(completion)
            }
            Some(Asked::Again) => match queue.ask(&self.shared) {
                Asked::Plain(completion) => {
                    drop(queue);
                    sink.transfer(completion)
                }
                Asked::Nothing => {
                    queue.overflowed = false;
                    drop(queue);
                    sink.nothing()
                }
                Asked::Again => sink.otherwise(self.dequeue_at_hand(queue)),
                asked => sink.otherwise(self.dequeue_asked(queue, asked)),
            },
            Some(asked) => sink.otherwise(self.dequeue_asked(queue, asked)),
            None => sink.otherwise(self.dequeue_queued(queue)),
        }
    }

    /// A dequeue that has to wait for its turn.
    #[cold]
    #[inline(never)]
    fn dequeue_contended(
        &self,
        slot: &EvdSlot<B::CompletionQueue, L>,
        evd: EvdId,
    ) -> Result<Event> {
        self.dequeue_held(slot.queue.hold(), evd)
    }

    /// Whatever is not the way of most dequeues ends in another function, so that these keep nothing for it.
    #[inline(always)]
    fn dequeue_held(&self, mut queue: HeldQueue<'_, B, L>, evd: EvdId) -> Result<Event> {
        if cfg!(feature = "compact") || queue.open != evd {
            return self.dequeue_otherwise(queue, evd);
        }
        match queue.look(&self.shared) {
            Some(Asked::Again) => self.dequeue_asking(queue),
            Some(asked) => self.dequeue_asked(queue, asked),
            None => self.dequeue_queued(queue),
        }
    }

    /// A dequeue that has to ask the device.
    #[inline(never)]
    fn dequeue_asking(&self, mut queue: HeldQueue<'_, B, L>) -> Result<Event> {
        match queue.ask(&self.shared) {
            Asked::Again => self.dequeue_at_hand(queue),
            asked => self.dequeue_asked(queue, asked),
        }
    }

    /// A dequeue for which the device has been asked.
    #[inline(never)]
    fn dequeue_at_hand(&self, mut queue: HeldQueue<'_, B, L>) -> Result<Event> {
        match queue.look(&self.shared) {
            Some(asked) => self.dequeue_asked(queue, asked),
            None => self.dequeue_queued(queue),
        }
    }

    #[inline(always)]
    fn dequeue_asked(&self, mut queue: HeldQueue<'_, B, L>, asked: Asked) -> Result<Event> {
        match asked {
            Asked::Plain(completion) => Ok(Event::Dto(completion)),
            Asked::Nothing => {
                queue.overflowed = false;
                Err(Error::queue_empty())
            }
            Asked::Again | Asked::Unclear => self.dequeue_polling(queue),
            Asked::Aside { token, length } => self.dequeue_aside(queue, token, length),
        }
    }

    /// A dequeue that need not ask the device.
    #[inline(never)]
    fn dequeue_queued(&self, mut queue: HeldQueue<'_, B, L>) -> Result<Event> {
        if queue.ready_length == 0
            && let Some(pointer) = queue.take_software(&self.shared.events)
        {
            return Ok(Event::Software { pointer });
        }
        let evd = queue.id;
        self.dequeue_otherwise(queue, evd)
    }

    /// A dequeue that is refused, or has more to look at than what the device says now.
    #[inline(never)]
    fn dequeue_otherwise(&self, mut queue: HeldQueue<'_, B, L>, evd: EvdId) -> Result<Event> {
        let outcome = queue.dequeue(evd, &self.shared);
        drop(queue);
        self.follow_up(evd, outcome)
    }

    /// A dequeue for which the device has to be polled.
    #[inline(never)]
    fn dequeue_polling(&self, queue: HeldQueue<'_, B, L>) -> Result<Event> {
        self.dequeue_polled(queue, None)
    }

    /// A dequeue that found the success of something that was not plain.
    #[inline(never)]
    fn dequeue_aside(&self, queue: HeldQueue<'_, B, L>, token: u64, length: u32) -> Result<Event> {
        self.dequeue_polled(queue, Some(Completion::success(token, length)))
    }

    fn dequeue_polled(
        &self,
        mut queue: HeldQueue<'_, B, L>,
        first: Option<Completion>,
    ) -> Result<Event> {
        let evd = queue.id;
        let outcome = queue.dequeue_polled(first, &self.shared);
        drop(queue);
        self.follow_up(evd, outcome)
    }

    /// What a dequeue's outcome asks for once the lock is released.
    fn follow_up(&self, evd: EvdId, outcome: Result<Event>) -> Result<Event> {
        match &outcome {
            Ok(event) if failed(event) => self.react(event),
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
            let mut queue = slot.queue.hold();
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
        self.post_se_otherwise(evd, pointer)
    }

    /// A post that is refused, or that somebody hears of.
    #[inline(never)]
    fn post_se_otherwise(&self, evd: EvdId, pointer: u64) -> Result<()> {
        self.on_evd(evd, |queue, aftermath| {
            if !queue.flags.contains(EvdFlags::SOFTWARE) {
                return Err(Error::invalid_argument(1).because(Cause::FlagNotAllowed));
            }
            if queue.push(&Event::Software { pointer }, &self.shared, aftermath) {
                Ok(())
            } else {
                Err(Error::queue_full().because(Cause::QueueFull))
            }
        })
    }

    /// A failed transfer or bind breaks the connection it ran on (DTO-12, RMB-22); a flushed one had
    /// none any more. No lock may be held.
    #[cold]
    pub(super) fn react(&self, event: &Event) {
        match event {
            Event::Dto(completion) if breaks(completion.status) => {
                self.connection_failed(completion.ep);
            }
            Event::RmrBind(completion) if breaks(completion.status) => {
                self.connection_failed(completion.ep);
            }
            Event::Extended(completion) if breaks(completion.status) => {
                self.connection_failed(completion.ep);
            }
            _ => {}
        }
    }

    /// A dequeue was the one that found the completion queue failed: reports it.
    #[cold]
    fn queue_failed(&self, evd: EvdId) -> Error {
        let reported = self.on_evd(evd, |queue, aftermath| {
            if let Some(failure) = queue.failure {
                aftermath.failure(evd, failure, &mut queue.owed);
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

fn breaks(status: DtoStatus) -> bool {
    !matches!(status, DtoStatus::Success | DtoStatus::Flushed)
}
