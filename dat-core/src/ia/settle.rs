//! Deferred effects of a call, once its locks are released: wake-ups, agents, overflow reports.

use super::Ia;
use crate::backend::{Backend, DeviceFailure};
use crate::event::{Aftermath, AsyncEventKind, Event, Owed, REASON_PRIMARY};
use crate::id::EvdId;
use crate::logging::notice;
use crate::sync::RawLock;
use crate::sync::atomic::Ordering;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Runs all deferred effects; no lock may be held.
    #[inline(never)]
    pub(crate) fn settle(&self, aftermath: &mut Aftermath) {
        self.settle_once(aftermath);
        while core::mem::take(&mut aftermath.owing) {
            self.settle_owed(aftermath);
            self.settle_once(aftermath);
        }
    }

    #[inline]
    fn settle_once(&self, aftermath: &mut Aftermath) {
        while let Some((evd, failure)) = aftermath.failed.pop() {
            self.report_failure(evd, failure, aftermath);
        }
        while let Some(evd) = aftermath.overflowed.pop() {
            self.report_overflow(evd, aftermath);
        }
        while let Some((cno, evd)) = aftermath.notifications.pop() {
            self.trigger(cno, evd);
        }
        while let Some(agent) = aftermath.released.pop() {
            (agent.function)(agent.instance_data, None);
        }
        while let Some(waker) = aftermath.wakers.pop() {
            waker.wake();
        }
    }

    /// Reports what dispatchers kept because `aftermath` was full; it is empty now.
    #[cold]
    fn settle_owed(&self, aftermath: &mut Aftermath) {
        for slot in self.shared.event_dispatchers.made() {
            let (evd, cno, failure, owed) = slot.queue.with(|queue| {
                let owed = core::mem::take(&mut queue.owed);
                (queue.id, queue.cno, queue.failure, owed)
            });
            if owed.contains(Owed::FAILURE)
                && let Some(failure) = failure
            {
                self.report_failure(evd, failure, aftermath);
            }
            if owed.contains(Owed::OVERFLOW) {
                self.report_overflow(evd, aftermath);
            }
            if owed.contains(Owed::NOTIFICATION)
                && let Some(cno) = cno
            {
                self.trigger(cno, evd);
            }
        }
    }

    /// Reports the failure of a dispatcher's completion queue.
    fn report_failure(&self, evd: EvdId, failure: DeviceFailure, aftermath: &mut Aftermath) {
        match failure {
            DeviceFailure::CompletionQueueOverrun => self.report_overflow(evd, aftermath),
            DeviceFailure::Broken => self.report_catastrophe(aftermath),
        }
    }

    /// Reports the permanent failure of the adapter, once.
    ///
    /// The event must not be lost: in a full queue it replaces the youngest event.
    pub(crate) fn report_catastrophe(&self, aftermath: &mut Aftermath) {
        if self.catastrophe.swap(true, Ordering::Relaxed) {
            return;
        }
        let event = Event::Async {
            kind: AsyncEventKind::IaCatastrophic,
            handle: self.handle(),
            reason: REASON_PRIMARY,
        };
        if let Some(slot) = self.shared.event_dispatchers.get(self.async_evd.index()) {
            slot.queue.with(|queue| {
                if queue.id == self.async_evd {
                    queue.push_final(&event, &self.shared, aftermath);
                }
            });
        }
    }

    /// Reports an overflow on the asynchronous dispatcher, whose own overflow is only logged.
    fn report_overflow(&self, evd: EvdId, aftermath: &mut Aftermath) {
        notice!("an event was lost: {:?} is full", evd);
        if evd == self.async_evd {
            return;
        }
        self.push_event(
            self.async_evd,
            &Event::Async {
                kind: AsyncEventKind::EvdOverflow,
                handle: evd.handle(),
                reason: REASON_PRIMARY,
            },
            aftermath,
        );
    }

    /// Queues an unsolicited event on a dispatcher, if it is live.
    pub(crate) fn push_event(&self, evd: EvdId, event: &Event, aftermath: &mut Aftermath) {
        if let Some(slot) = self.shared.event_dispatchers.get(evd.index()) {
            slot.queue.with(|queue| {
                if queue.id == evd && !evd.is_null() {
                    queue.push_unsolicited(event, &self.shared, aftermath);
                }
            });
        }
    }

    /// As `push_event`, by index: an object keeps its dispatcher alive.
    pub(crate) fn push_event_at(&self, evd: u16, event: &Event, aftermath: &mut Aftermath) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) {
            slot.queue
                .with(|queue| queue.push_unsolicited(event, &self.shared, aftermath));
        }
    }

    /// Polls the completions of a dispatcher; no lock may be held.
    pub(crate) fn harvest_at(&self, evd: u16) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) {
            let mut aftermath = Aftermath::default();
            slot.queue
                .with(|queue| queue.harvest(&self.shared, &mut aftermath));
            self.settle(&mut aftermath);
        }
    }
}
