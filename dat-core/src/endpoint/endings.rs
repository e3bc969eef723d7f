//! Access to endpoints, and the ends and the events of their connections.

use super::endpoint::ConnectionData;
use super::{Endpoint, EndpointSlot, ReceiveSide, Trigger};
use crate::adapter::{Control, Ia, busy};
use crate::backend::{Backend, DisconnectMode};
use crate::error::{Result, Subtype};
use crate::event::{
    AsyncEventKind, ConnectionEventKind, Deferred, Event, REASON_PRIMARY, ReadyWalk,
};
use crate::id::{EpId, Handle};
use crate::sync::atomic::Ordering;
use crate::sync::{Guard, Parked, RawLock};

/// Slot of an endpoint on backend `B`.
pub(crate) type SlotOf<B, L> =
    EndpointSlot<<B as Backend>::SendQueue, <B as Backend>::ReceiveQueue, L>;
/// Endpoint of backend `B`.
pub(crate) type EndpointOf<B> = Endpoint<<B as Backend>::SendQueue>;
/// Slot of an endpoint, and the endpoint, locked.
type LockedEndpoint<'a, B, L> = (&'a SlotOf<B, L>, Guard<'a, L, EndpointOf<B>>);

/// As `LockedEndpoint`, parked.
type ParkedEndpoint<'a, B, L> = (&'a SlotOf<B, L>, Parked<'a, L, EndpointOf<B>>);

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

    /// As `with_endpoint`, while the endpoint is parked. Needs the control lock.
    pub(crate) fn with_parked_endpoint<R>(
        &self,
        ep: EpId,
        f: impl FnOnce(&SlotOf<B, L>, &mut EndpointOf<B>) -> Result<R>,
    ) -> Result<R> {
        let (slot, mut endpoint) = self.park_endpoint(ep)?;
        let outcome = f(slot, &mut endpoint);
        self.end_parking(endpoint);
        outcome
    }

    /// As `with_parked_endpoint`, for both sides of the endpoint.
    pub(super) fn with_parked_queues<R>(
        &self,
        ep: EpId,
        f: impl FnOnce(
            &SlotOf<B, L>,
            &mut EndpointOf<B>,
            &mut ReceiveSide<B::ReceiveQueue>,
        ) -> Result<R>,
    ) -> Result<R> {
        self.with_parked_endpoint(ep, |slot, endpoint| {
            let mut side = slot.receive.park();
            let outcome = f(slot, endpoint, &mut side);
            self.end_parking(side);
            outcome
        })
    }

    /// As `with_parked_queues`, for a slot that may be free.
    pub(super) fn with_parked_slot<R>(
        &self,
        slot: &SlotOf<B, L>,
        f: impl FnOnce(&mut EndpointOf<B>, &mut ReceiveSide<B::ReceiveQueue>) -> R,
    ) -> R {
        let mut endpoint = slot.main.park();
        let mut side = slot.receive.park();
        let outcome = f(&mut endpoint, &mut side);
        self.end_parking(side);
        self.end_parking(endpoint);
        outcome
    }

    /// Parks a live endpoint.
    fn park_endpoint(&self, ep: EpId) -> Result<ParkedEndpoint<'_, B, L>> {
        if let Some(slot) = self.shared.endpoints.get(ep.index()) {
            let endpoint = slot.main.park();
            if endpoint.id == ep && !ep.is_null() {
                return Ok((slot, endpoint));
            }
            self.end_parking(endpoint);
        }
        Err(ep.refused(self.shared.instance))
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

    /// As `with_parked_endpoint`, for the endpoint that a backend's token names.
    pub(crate) fn with_token<R>(
        &self,
        token: u64,
        f: impl FnOnce(&SlotOf<B, L>, &mut EndpointOf<B>) -> R,
    ) -> Option<R> {
        let ep = EpId::from_handle(Handle::from_raw(token));
        self.with_parked_endpoint(ep, |slot, endpoint| Ok(f(slot, endpoint)))
            .ok()
    }

    /// Ends a connection or attempt; returns false if the state has no transition for it.
    pub(crate) fn end_connection(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &mut EndpointOf<B>,
        ending: Ending,
        deferred: &mut Deferred,
    ) -> bool {
        if !endpoint.step(ending.trigger) {
            return false;
        }
        if let (Some(mode), Some(key), Ok(backend)) =
            (ending.mode, endpoint.queue_pair, control.backend())
        {
            backend.disconnect(key, mode);
        }
        endpoint.connection.deadline = None;
        let size = if ending.kind == ConnectionEventKind::PeerRejected {
            endpoint.connection.private_data.len()
        } else {
            0
        };
        self.report_connection(endpoint, ending.kind, size, deferred);
        self.report_shared_end(endpoint, ending.kind, deferred);
        true
    }

    /// Queues EP_BROKEN for a connection that ended, if the endpoint uses a shared queue.
    ///
    /// Does so only after `report_shared_ends`.
    fn report_shared_end(
        &self,
        endpoint: &EndpointOf<B>,
        kind: ConnectionEventKind,
        deferred: &mut Deferred,
    ) {
        use ConnectionEventKind::{Broken, Disconnected};
        let has_ended = endpoint.srq.is_some() && matches!(kind, Broken | Disconnected);
        if has_ended && self.tells_shared_ends.load(Ordering::Relaxed) {
            let event = Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: endpoint.id.handle(),
                reason: REASON_PRIMARY,
            };
            self.push_async(&event, deferred);
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
    pub(crate) fn report_connection(
        &self,
        endpoint: &EndpointOf<B>,
        kind: ConnectionEventKind,
        private_data_size: usize,
        deferred: &mut Deferred,
    ) {
        let Some(evd) = endpoint.connect_evd else {
            return;
        };
        let event = Event::Connection {
            kind,
            ep: endpoint.id,
            // At most `PRIVATE_DATA_MAX`.
            private_data_size: private_data_size as u16,
        };
        self.push_event_at(evd, &event, deferred);
    }

    /// Queues ESTABLISHED before the connection's data (order rules of the event design).
    pub(crate) fn report_established(
        &self,
        endpoint: &EndpointOf<B>,
        private_data_size: usize,
        deferred: &mut Deferred,
    ) {
        let slot = endpoint
            .connect_evd
            .and_then(|evd| self.shared.event_dispatchers.get(usize::from(evd)));
        if let Some(slot) = slot {
            let event = Event::Connection {
                kind: ConnectionEventKind::Established,
                ep: endpoint.id,
                // At most `PRIVATE_DATA_MAX`.
                private_data_size: private_data_size as u16,
            };
            let index = endpoint.id.slot();
            let mut walk = None;
            self.walk_ready(slot, |queue| {
                let walk = walk.get_or_insert(ReadyWalk::of(queue));
                if queue.find_endpoint(index, walk, &self.shared) {
                    return true;
                }
                let queued = queue.push_established(&event, walk.position, &self.shared, deferred);
                queue.note_overflow(queued, deferred);
                false
            });
        }
    }

    /// Breaks the connection of an endpoint whose request or receive failed, once.
    ///
    /// Spec: DTO-12, RMB-22
    pub(crate) fn connection_failed(&self, ep: EpId) {
        let mut deferred = Deferred::default();
        let Some(mut control) = self.try_control() else {
            return self.note_failed_connection(ep);
        };
        // A freed endpoint has no connection to break.
        let _broken = self.with_parked_endpoint(ep, |_, endpoint| {
            let ending = Ending {
                trigger: Trigger::Break,
                mode: Some(DisconnectMode::Broken),
                kind: ConnectionEventKind::Broken,
            };
            Ok(self.end_connection(&mut control, endpoint, ending, &mut deferred))
        });
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
