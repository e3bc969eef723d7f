//! Parked dispatchers, and what contexts missed that met them.
//!
//! `adapter/busy.rs` has the rules. A dispatcher is parked by [`Mutex::park`](crate::sync::Mutex).

use crate::adapter::{Ia, busy};
use crate::backend::Backend;
use crate::error::{Result, Subtype};
use crate::event::{Deferred, EvdQueue, EvdSlot, Pending};
use crate::id::{EpId, Handle};
use crate::sync::atomic::Ordering;
use crate::sync::{Parked, RawLock};

/// A dispatcher that is parked, or locked in place of that.
type ParkedDispatcher<'a, B, L> = Parked<'a, L, EvdQueue<<B as Backend>::CompletionQueue>>;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Runs `f` on a parked dispatcher. Needs the control lock.
    ///
    /// A dispatcher with a waiter stays locked in place of being parked: the end of a parking tells
    /// contexts, not waiters. So does the asynchronous one, to which every context reports. `f`
    /// gives no command to the device for a locked one if [`is_masked`](Self::is_masked) says so.
    pub(crate) fn with_parked<R>(
        &self,
        slot: &EvdSlot<B::CompletionQueue, L>,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>) -> R,
    ) -> R {
        let mut queue = self.park_dispatcher(slot);
        let result = f(&mut queue);
        self.end_parking_of(slot, queue);
        result
    }

    fn park_dispatcher<'a>(
        &self,
        slot: &'a EvdSlot<B::CompletionQueue, L>,
    ) -> ParkedDispatcher<'a, B, L> {
        slot.queue.park_unless(|queue| self.is_masked(queue))
    }

    fn end_parking_of(
        &self,
        slot: &EvdSlot<B::CompletionQueue, L>,
        queue: ParkedDispatcher<'_, B, L>,
    ) {
        if queue.end() {
            slot.queue.with(|queue| queue.pending.add(Pending::REFUSED));
            self.note_missed();
        }
    }

    /// Returns true if changes of a dispatcher keep its lock, which masks interrupts.
    pub(crate) fn is_masked(&self, queue: &EvdQueue<B::CompletionQueue>) -> bool {
        L::PARKS && (queue.waiter.is_some() || queue.id == self.async_evd)
    }

    /// Refuses a command to the device for a dispatcher that keeps its lock, which masks
    /// interrupts.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (TEVD): the dispatcher has a waiter.
    pub(crate) fn check_unmasked(&self, queue: &EvdQueue<B::CompletionQueue>) -> Result<()> {
        if self.is_masked(queue) {
            return Err(busy(Subtype::ResourceTevd));
        }
        Ok(())
    }

    /// Polls a dispatcher; where the lock parks, each completion in a section of its own.
    pub(crate) fn poll_slot(&self, slot: &EvdSlot<B::CompletionQueue, L>, deferred: &mut Deferred) {
        if !L::PARKS {
            slot.queue.with(|queue| queue.poll(&self.shared, deferred));
            return;
        }
        let mut patience = None;
        while let Some(mut queue) = slot.queue.lock_unparked() {
            let left = patience.get_or_insert(queue.depth.saturating_add(1));
            if *left == 0 || !queue.poll_next(&self.shared, deferred) {
                return;
            }
            *left = left.wrapping_sub(1);
        }
    }

    /// Calls `f` on a locked dispatcher until it returns false; releases the lock after each call.
    ///
    /// For walks through the ready completions. Needs the control lock.
    pub(crate) fn walk_ready(
        &self,
        slot: &EvdSlot<B::CompletionQueue, L>,
        mut f: impl FnMut(&mut EvdQueue<B::CompletionQueue>) -> bool,
    ) {
        while slot.queue.with(&mut f) {}
    }

    /// Notes that the connection of an endpoint failed; the next `progress` breaks it.
    #[cold]
    pub(crate) fn note_failed_connection(&self, ep: EpId) {
        let slot = self.shared.endpoints.get(ep.index());
        if let Some(slot) = slot.filter(|slot| slot.handle.load() == ep.handle().to_raw()) {
            slot.note_failure();
            self.note_missed();
            self.interrupt_handle().notify();
        }
    }

    /// Polls and arms the dispatchers that refused a call, and breaks the connections that failed.
    ///
    /// No lock may be held.
    #[cold]
    pub(crate) fn make_up(&self) {
        self.shared.missed.store(false, Ordering::Relaxed);
        let mut deferred = Deferred {
            any_pending: true,
            ..Deferred::default()
        };
        self.run_deferred(&mut deferred);
        for slot in self.shared.endpoints.made() {
            if slot.take_failure() {
                let handle = Handle::from_raw(slot.handle.load());
                self.connection_failed(EpId::from_handle(handle));
            }
        }
        // Whoever was refused may look again.
        self.interrupt_handle().notify();
    }
}
