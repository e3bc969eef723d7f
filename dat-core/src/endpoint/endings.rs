//! Access to endpoints, and the ends and the events of their connections.

use super::endpoint::ConnectionData;
use super::state::next;
use super::{Endpoint, EndpointSlot, ReceiveSide, Trigger};
use crate::adapter::{Control, Ia, busy};
use crate::backend::{Backend, DisconnectMode};
use crate::error::{Result, Subtype};
use crate::event::{AsyncEventKind, ConnectionEventKind, Deferred, Event, REASON_PRIMARY};
use crate::id::{EpId, Handle, Index};
use crate::sync::atomic::Ordering;
use crate::sync::{Guard, RawLock};

/// Slot of an endpoint on backend `B`.
pub(crate) type SlotOf<B, L> =
    EndpointSlot<<B as Backend>::SendQueue, <B as Backend>::ReceiveQueue, L>;
/// Endpoint of backend `B`.
pub(crate) type EndpointOf<B> = Endpoint<<B as Backend>::SendQueue>;
/// Slot of an endpoint, and the endpoint, locked.
type LockedEndpoint<'a, B, L> = (&'a SlotOf<B, L>, Guard<'a, L, EndpointOf<B>>);

/// The end of a connection or connection attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Trigger for the endpoint's state.
    pub(crate) trigger: Trigger,
    /// Disconnect mode for the device; `None` if the device reported the end.
    pub(crate) mode: Option<DisconnectMode>,
    /// Event for the consumer.
    pub(crate) kind: ConnectionEventKind,
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Runs `f` on a live endpoint under its main lock.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INSUFFICIENT_RESOURCES (TEP): it is parked; never with the control lock.
    pub(crate) fn with_endpoint<R>(
        &self,
        ep: EpId,
        f: impl FnOnce(&SlotOf<B, L>, &mut EndpointOf<B>) -> Result<R>,
    ) -> Result<R> {
        let (slot, mut endpoint) = self.lock_endpoint(ep)?;
        f(slot, &mut endpoint)
    }

    /// Runs `f` on both sides of a live endpoint while they are parked. Needs the control lock.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    pub(super) fn with_parked_endpoint<T>(
        &self,
        ep: EpId,
        f: impl FnOnce(
            &SlotOf<B, L>,
            &mut EndpointOf<B>,
            &mut ReceiveSide<B::ReceiveQueue>,
        ) -> Result<T>,
    ) -> Result<T> {
        let refused = || ep.refused(self.shared.instance);
        let slot = self.shared.endpoints.get(ep.index()).ok_or_else(refused)?;
        slot.parked(|endpoint, side| {
            if endpoint.id != ep || ep.is_null() {
                return Err(refused());
            }
            f(slot, endpoint, side)
        })
    }

    /// Locks a live endpoint.
    fn lock_endpoint(&self, ep: EpId) -> Result<LockedEndpoint<'_, B, L>> {
        if let Some(slot) = self.shared.endpoints.get(ep.index()) {
            let Some(endpoint) = slot.main.lock_unparked() else {
                return Err(busy(Subtype::ResourceTep));
            };
            if endpoint.id == ep && !ep.is_null() {
                return Ok((slot, endpoint));
            }
        }
        Err(ep.refused(self.shared.instance))
    }

    /// Runs `f` on the endpoint that a backend's token names, if the endpoint is live.
    pub(crate) fn with_token<R>(
        &self,
        token: u64,
        f: impl FnOnce(&SlotOf<B, L>, &mut EndpointOf<B>) -> R,
    ) -> Option<R> {
        let ep = EpId::from_handle(Handle::from_raw(token));
        self.with_endpoint(ep, |slot, endpoint| Ok(f(slot, endpoint)))
            .ok()
    }

    /// Ends a connection or attempt; returns false if the state has no transition for it.
    pub(crate) fn end_connection(
        &self,
        control: &mut Control<'_, B>,
        ep: EpId,
        ending: Ending,
        deferred: &mut Deferred,
    ) -> bool {
        if let Some(mode) = ending.mode {
            // The device is called without the endpoint's lock. The control lock keeps the state.
            let key = self.with_endpoint(ep, |_, endpoint| {
                Ok(next(endpoint.state, ending.trigger).and(endpoint.queue_pair))
            });
            if let (Ok(Some(key)), Ok(backend)) = (key, control.backend()) {
                backend.disconnect(key, mode);
            }
        }
        let ended = self.with_endpoint(ep, |_, endpoint| {
            if !endpoint.step(ending.trigger) {
                return Ok(None);
            }
            endpoint.connection.deadline = None;
            let size = if ending.kind == ConnectionEventKind::PeerRejected {
                endpoint.connection.private_data.len()
            } else {
                0
            };
            Ok(Some((endpoint.connect_evd, endpoint.srq.is_some(), size)))
        });
        let Ok(Some((evd, is_shared, size))) = ended else {
            return false;
        };
        self.report_connection(evd, ep, ending.kind, size, deferred);
        if is_shared {
            self.report_shared_end(ep, ending.kind, deferred);
        }
        true
    }

    /// Queues EP_BROKEN for the connection of an endpoint with a shared queue, if it has ended.
    ///
    /// Does so only after `report_shared_ends`.
    fn report_shared_end(&self, ep: EpId, kind: ConnectionEventKind, deferred: &mut Deferred) {
        use ConnectionEventKind::{Broken, Disconnected};
        let has_ended = matches!(kind, Broken | Disconnected);
        if has_ended && self.tells_shared_ends.load(Ordering::Relaxed) {
            let event = Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: ep.handle(),
                reason: REASON_PRIMARY,
            };
            self.push_event(self.async_evd, &event, deferred);
        }
    }

    /// Makes the core report EP_BROKEN for each ended connection that uses a shared receive queue.
    ///
    /// The event, [`AsyncEventKind::EpBroken`], comes in addition to the connection event.
    /// InfiniBand devices raise it when such an endpoint takes no more buffers, and programs wait
    /// for it before they free the endpoint.
    #[doc(hidden)]
    pub fn report_shared_ends(&self) {
        self.tells_shared_ends.store(true, Ordering::Relaxed);
    }

    /// Queues a connection event after the completions that can be polled.
    ///
    /// Without a connection dispatcher, no event is queued.
    fn report_connection(
        &self,
        evd: Option<Index>,
        ep: EpId,
        kind: ConnectionEventKind,
        private_data_size: usize,
        deferred: &mut Deferred,
    ) {
        let Some(evd) = evd else {
            return;
        };
        let event = Event::Connection {
            kind,
            ep,
            // At most `PRIVATE_DATA_MAX`.
            private_data_size: private_data_size as u16,
        };
        self.push_event_at(evd, &event, deferred);
    }

    /// Queues ESTABLISHED before the connection's data (order rules of the event design).
    pub(crate) fn report_established(
        &self,
        evd: Option<Index>,
        ep: EpId,
        private_data_size: usize,
        deferred: &mut Deferred,
    ) {
        let slot = evd.and_then(|evd| self.shared.event_dispatchers.get(usize::from(evd)));
        if let Some(slot) = slot {
            let event = Event::Connection {
                kind: ConnectionEventKind::Established,
                ep,
                // At most `PRIVATE_DATA_MAX`.
                private_data_size: private_data_size as u16,
            };
            self.with_parked(slot, |queue| {
                let queued = queue.push_established(&event, ep.slot(), &self.shared, deferred);
                queue.note_overflow(queued, deferred);
            });
        }
    }

    /// Breaks the connection of an endpoint whose request or receive failed, once.
    ///
    /// Spec: DTO-12, RMB-22
    pub(crate) fn connection_failed(&self, ep: EpId) {
        let mut deferred = Deferred::default();
        let ending = Ending {
            trigger: Trigger::Break,
            mode: Some(DisconnectMode::Broken),
            kind: ConnectionEventKind::Broken,
        };
        let Some(mut control) = self.control.try_lock() else {
            return self.note_failed_connection(ep);
        };
        // A freed endpoint has no connection to break.
        let _broken = self.end_connection(&mut control, ep, ending, &mut deferred);
        drop(control);
        self.run_deferred(&mut deferred);
    }
}

impl ConnectionData {
    /// Clears the peer and everything else known of a connection.
    ///
    /// Outlined: it is large.
    #[inline(never)]
    pub(crate) fn clear(&mut self) {
        *self = Self::NONE;
    }
}
