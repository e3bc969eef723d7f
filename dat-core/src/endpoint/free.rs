//! Freeing and resetting endpoints.

use super::{Call, Endpoint, EndpointSlot, Legal, ReceiveSide, Trigger, WorkRing, permit};
use crate::backend::{Backend, DisconnectMode};
use crate::error::{Result, Subtype};
use crate::event::{Aftermath, backend_refused};
use crate::flags::EndpointState;
use crate::ia::{Control, Ia};
use crate::id::EpId;
use crate::record::{self, Owner};
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Frees an endpoint; a connection or an attempt is ended first, without an event.
    ///
    /// Completions that were not dequeued are dropped.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (EP_RESERVED, EP_PASSCONNPENDING, EP_TENTCONNPENDING): free the reserved service
    ///   point, or answer the connection request, first.
    ///
    /// Spec: EPF-01..03, GEN-15
    pub fn ep_free(&self, ep: EpId) -> Result<()> {
        let mut aftermath = Aftermath::default();
        let outcome = self.control.with(|control| {
            self.with_endpoint(ep, |_, endpoint| permit(Call::Free, endpoint.state))?;
            self.destroy_endpoint_at(control, ep.index() as u16, &mut aftermath);
            Ok(())
        });
        self.settle(aftermath);
        outcome
    }

    /// Brings a disconnected endpoint back to UNCONNECTED with both queues empty.
    ///
    /// Nothing happens to an endpoint that is UNCONNECTED already. Completions that were not
    /// dequeued are dropped.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): neither DISCONNECTED nor UNCONNECTED.
    /// - INSUFFICIENT_RESOURCES (TEP), INTERNAL_ERROR: the device cannot.
    ///
    /// Spec: EPR-01..03, EPX-03
    pub fn ep_reset(&self, ep: EpId) -> Result<()> {
        let mut aftermath = Aftermath::default();
        let outcome = self.control.with(|control| {
            self.with_endpoint(ep, |slot, endpoint| {
                if permit(Call::Reset, endpoint.state)? == Legal::NoOp {
                    return Ok(());
                }
                slot.receive.with(|side| {
                    // A reset may drop what was not polled, and with it how a bind ended or which
                    // buffers of a shared queue came back.
                    self.harvest_both(endpoint.request_evd, endpoint.receive_evd, &mut aftermath);
                    if let (Some(key), Some(send)) = (endpoint.queue_pair, &mut endpoint.send) {
                        control
                            .backend()?
                            .reset_queue_pair(key, send, side.queue.as_mut())
                            .map_err(|error| backend_refused(error, Subtype::ResourceTep))?;
                    }
                    // Or it may keep it: then it would take up places that the next life needs.
                    self.harvest_both(endpoint.request_evd, endpoint.receive_evd, &mut aftermath);
                    self.abandon_binds(endpoint.ring.records(self.shared.records));
                    self.forget_work(ep);
                    endpoint.ring = self.renew_ring(Owner::Requests(ep), endpoint.ring);
                    side.ring = self.renew_ring(Owner::Receives(ep), side.ring);
                    endpoint.link.clear();
                    endpoint.step(Trigger::Reset);
                    Ok(())
                })
            })
        });
        self.settle(aftermath);
        outcome
    }

    /// Takes back all records of a queue and gives it a run of the same length again.
    fn renew_ring(&self, owner: Owner, ring: WorkRing) -> WorkRing {
        record::give_back_all(self.shared.records, owner);
        // The run that just became free is long enough.
        record::allocate(self.shared.records, owner, ring.capacity)
            .map_or(WorkRing::EMPTY, |base| WorkRing::new(base, ring.capacity))
    }

    /// Drops what one endpoint has posted, and its completions that wait to be dequeued, wherever a
    /// device put them. Once a record is free no completion of it is recognised; a dispatcher that
    /// recognised one just before has it in its queue by the time its lock is free. So nobody else
    /// touches the records afterwards.
    fn forget_work(&self, ep: EpId) {
        let records = self.shared.records;
        record::withdraw_all(records, Owner::Requests(ep));
        record::withdraw_all(records, Owner::Receives(ep));
        for slot in self.shared.event_dispatchers {
            slot.queue
                .with(|queue| queue.forget_endpoint(ep.index() as u16, &self.shared));
        }
    }

    /// Frees an endpoint in any state, with everything it holds.
    pub(crate) fn destroy_endpoint_at(
        &self,
        control: &mut Control<'_, B>,
        index: u16,
        aftermath: &mut Aftermath,
    ) {
        let Some(slot) = self.shared.endpoints.get(usize::from(index)) else {
            return;
        };
        self.end_quietly(control, slot, aftermath);
        let (endpoint, side) = slot.main.with(|endpoint| {
            slot.receive.with(|side| {
                let empty = Endpoint {
                    generation: endpoint.generation,
                    ..Endpoint::EMPTY
                };
                (
                    core::mem::replace(endpoint, empty),
                    core::mem::replace(side, ReceiveSide::EMPTY),
                )
            })
        });
        if endpoint.id.is_null() {
            return;
        }
        if let (Some(key), Some(send), Ok(backend)) =
            (endpoint.queue_pair, endpoint.send, control.backend())
        {
            backend.destroy_queue_pair(key, send, side.queue);
        }
        // What is left in the completion queues would take up places that go to others now.
        self.harvest_both(endpoint.request_evd, endpoint.receive_evd, aftermath);
        self.abandon_binds(endpoint.ring.records(self.shared.records));
        self.forget_work(endpoint.id);
        // Until here events of the endpoint may be dequeued, and name it.
        slot.handle.store(0);
        record::give_back_all(self.shared.records, Owner::Requests(endpoint.id));
        record::give_back_all(self.shared.records, Owner::Receives(endpoint.id));
        // The size of a shared queue may have changed since the endpoint was tied to it.
        let places = endpoint.srq.map_or(endpoint.receive_places, |srq| {
            self.detach_endpoint_from_srq(srq)
        });
        if let Some(evd) = endpoint.receive_evd {
            self.detach_stream(evd, Some(places));
        }
        if let Some(evd) = endpoint.request_evd {
            self.detach_stream(evd, Some(endpoint.ring.capacity));
        }
        if let Some(evd) = endpoint.connect_evd {
            self.detach_stream(evd, None);
        }
        if let Some(zone) = endpoint.zone {
            self.release_zone(control, zone);
        }
    }

    /// Ends what an endpoint has of a connection without a word, and takes in what completed, so
    /// that buffers of a shared queue find their way back before their taker is gone, and that a bind
    /// the device carried out counts as carried out although nobody will hear of it.
    fn end_quietly(
        &self,
        control: &mut Control<'_, B>,
        slot: &EndpointSlot<B::SendQueue, B::ReceiveQueue, L>,
        aftermath: &mut Aftermath,
    ) {
        let (key, receives, requests) = slot.main.with(|endpoint| {
            let running = matches!(
                endpoint.state,
                EndpointState::ActiveConnectionPending
                    | EndpointState::CompletionPending
                    | EndpointState::Connected
                    | EndpointState::DisconnectPending
            );
            (
                endpoint.queue_pair.filter(|_| running),
                endpoint.srq.and(endpoint.receive_evd),
                endpoint.request_evd,
            )
        });
        if let (Some(key), Ok(backend)) = (key, control.backend()) {
            backend.disconnect(key, DisconnectMode::Abrupt);
        }
        self.harvest_both(requests, receives, aftermath);
    }

    /// Takes in the completions there are for the dispatchers of an endpoint.
    fn harvest_both(
        &self,
        requests: Option<u16>,
        receives: Option<u16>,
        aftermath: &mut Aftermath,
    ) {
        self.harvest_under_lock(requests, aftermath);
        self.harvest_under_lock(receives.filter(|_| receives != requests), aftermath);
    }

    /// As `harvest_at`, for holders of locks.
    fn harvest_under_lock(&self, evd: Option<u16>, aftermath: &mut Aftermath) {
        let slot = evd.and_then(|evd| self.shared.event_dispatchers.get(usize::from(evd)));
        if let Some(slot) = slot {
            slot.queue
                .with(|queue| queue.harvest(&self.shared, aftermath));
        }
    }
}
