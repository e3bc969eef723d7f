//! Deferred effects of a call, once its locks are released: wake-ups, agents, overflow reports.

use crate::adapter::Ia;
use crate::backend::{Backend, DeviceFailure};
use crate::event::{
    ARMING_ROUNDS, AsyncEventKind, Deferred, Event, Look, Pending, REASON_PRIMARY, contain_panic,
};
use crate::id::{EvdId, Index};
use crate::logging::notice;
use crate::sync::RawLock;
use crate::sync::atomic::Ordering;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Runs all deferred effects; no lock may be held.
    pub(crate) fn run_deferred(&self, deferred: &mut Deferred) {
        self.run_deferred_once(deferred);
        let mut rounds = 0_u32;
        while core::mem::take(&mut deferred.any_pending) {
            if L::PARKS && rounds == ARMING_ROUNDS {
                // Completions keep arriving, or the device waits for the context that this one
                // interrupts. Dispatchers keep what is pending.
                self.note_missed();
                return self.interrupt_handle().notify();
            }
            rounds = rounds.wrapping_add(1);
            self.run_pending(deferred);
            self.run_deferred_once(deferred);
        }
    }

    #[inline]
    fn run_deferred_once(&self, deferred: &mut Deferred) {
        while let Some((evd, failure)) = deferred.failed.pop() {
            self.report_failure(evd, failure, deferred);
        }
        while let Some(evd) = deferred.overflowed.pop() {
            self.report_overflow(evd, deferred);
        }
        while let Some((cno, evd)) = deferred.notifications.pop() {
            self.trigger(cno, evd);
        }
        if let Some(cno) = deferred.agents.take() {
            self.call_agents(cno);
        }
        for agent in &deferred.released {
            contain_panic(|| (agent.function)(agent.instance_data, None));
        }
        deferred.released.clear();
        while let Some(waker) = deferred.wakers.pop() {
            contain_panic(|| waker.wake());
        }
    }

    /// Reports what dispatchers kept because `deferred` was full; it is empty now.
    #[cold]
    fn run_pending(&self, deferred: &mut Deferred) {
        for slot in self.shared.event_dispatchers.made() {
            // The end of its parking comes back to a dispatcher that is parked.
            let Some(mut queue) = slot.queue.lock_unparked() else {
                continue;
            };
            let pending = core::mem::take(&mut queue.pending);
            let (evd, cno, failure) = (queue.id, queue.cno, queue.failure);
            drop(queue);
            if pending.contains(Pending::REFUSED) {
                self.look_at(slot, Look::AfterParking, deferred);
            } else if pending.contains(Pending::LOOK) {
                self.look_at(slot, Look::Any, deferred);
            }
            if pending.contains(Pending::FAILURE)
                && let Some(failure) = failure
            {
                self.report_failure(evd, failure, deferred);
            }
            if pending.contains(Pending::OVERFLOW) {
                self.report_overflow(evd, deferred);
            }
            if pending.contains(Pending::NOTIFICATION)
                && let Some(cno) = cno
            {
                self.trigger(cno, evd);
            }
        }
    }

    /// Reports the failure of a dispatcher's completion queue.
    fn report_failure(&self, evd: EvdId, failure: DeviceFailure, deferred: &mut Deferred) {
        match failure {
            DeviceFailure::CompletionQueueOverrun => self.report_overflow(evd, deferred),
            DeviceFailure::Broken => self.report_catastrophe(deferred),
        }
    }

    /// Reports the permanent failure of the adapter, once.
    ///
    /// The event must not be lost: in a full queue it replaces the youngest event.
    pub(crate) fn report_catastrophe(&self, deferred: &mut Deferred) {
        if self.catastrophe.swap(true, Ordering::Relaxed) {
            return;
        }
        let event = Event::Async {
            kind: AsyncEventKind::IaCatastrophic,
            handle: self.handle(),
            reason: REASON_PRIMARY,
        };
        if let Some(slot) = self.shared.event_dispatchers.get(self.async_evd.index()) {
            // It is never parked.
            slot.queue.with(|queue| {
                if queue.id == self.async_evd {
                    queue.push_final(&event, &self.shared, deferred);
                }
            });
        }
    }

    /// Reports an overflow on the asynchronous dispatcher, whose own overflow is only logged.
    fn report_overflow(&self, evd: EvdId, deferred: &mut Deferred) {
        notice!("an event was lost: {:?} is full", evd);
        if evd == self.async_evd {
            return;
        }
        self.push_async(
            &Event::Async {
                kind: AsyncEventKind::EvdOverflow,
                handle: evd.handle(),
                reason: REASON_PRIMARY,
            },
            deferred,
        );
    }

    /// Queues an event on the asynchronous dispatcher, if it is live.
    pub(crate) fn push_async(&self, event: &Event, deferred: &mut Deferred) {
        self.push_event(self.async_evd, event, deferred);
    }

    /// Queues an unsolicited event on a dispatcher, if it is live.
    pub(crate) fn push_event(&self, evd: EvdId, event: &Event, deferred: &mut Deferred) {
        if let Some(slot) = self.shared.event_dispatchers.get(evd.index()) {
            // The asynchronous dispatcher is never parked.
            slot.queue.with(|queue| {
                if queue.id == evd && !evd.is_null() {
                    queue.push_unsolicited(event, &self.shared, deferred);
                }
            });
        }
    }

    /// Queues an event on the dispatcher of an object, which keeps it alive. Needs the control
    /// lock.
    pub(crate) fn push_event_at(&self, evd: Index, event: &Event, deferred: &mut Deferred) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) {
            if L::PARKS {
                self.poll_slot(slot, deferred);
            }
            slot.queue
                .with(|queue| queue.push_unsolicited(event, &self.shared, deferred));
        }
    }

    /// Polls the completions of a dispatcher; no lock may be held.
    pub(crate) fn poll_at(&self, evd: Index) {
        let mut deferred = Deferred::default();
        self.poll_slot_at(evd, &mut deferred);
        self.run_deferred(&mut deferred);
    }

    /// As `poll_at`, for callers that hold locks.
    pub(crate) fn poll_slot_at(&self, evd: Index, deferred: &mut Deferred) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) {
            self.poll_slot(slot, deferred);
        }
    }
}
