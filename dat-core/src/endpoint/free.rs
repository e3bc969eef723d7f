//! Frees and resets endpoints.

use super::endings::SlotOf;
use super::{Call, EndpointSlot, Legal, ReceiveSide, Trigger, WorkRing, permit};
use crate::adapter::{Control, Ia};
use crate::backend::{Backend, DisconnectMode, backend_refused};
use crate::error::{Result, Subtype};
use crate::event::{Deferred, EvdSlot, ReadyWalk};
use crate::flags::EndpointState;
use crate::id::{EpId, Index};
use crate::record::{self, Owner, Reach};
use crate::sync::RawLock;

/// Resources of a freed endpoint, to give back.
struct Left {
    id: EpId,
    ring: WorkRing,
    reach: Reach,
    receive_reach: Reach,
    receive_evd: Option<Index>,
    request_evd: Option<Index>,
    connect_evd: Option<Index>,
    receive_capacity: u32,
    srq: Option<Index>,
    zone: Option<u16>,
}

/// Work of an endpoint that is dropped.
struct Work {
    ep: EpId,
    reach: Reach,
    receive_reach: Reach,
    /// Dispatchers of its requests and receives.
    evds: [Option<Index>; 2],
    srq: Option<Index>,
}

impl Work {
    /// Returns the ranges of the endpoint's records, with their owners.
    fn own(&self) -> [(Reach, Owner); 2] {
        [
            (self.reach, Owner::Requests(self.ep)),
            (self.receive_reach, Owner::Receives(self.ep)),
        ]
    }
}

/// # Freeing endpoints
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Frees an endpoint; first ends its connection or connection attempt, without an event.
    ///
    /// Completions that were not dequeued are dropped.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP_RESERVED, EP_PASSCONNPENDING, EP_TENTCONNPENDING): free the reserved
    ///   service point, or answer the connection request, first.
    ///
    /// Spec: EPF-01..03, GEN-15
    pub fn ep_free(&self, ep: EpId) -> Result<()> {
        let mut deferred = Deferred::default();
        let outcome = self.controlled(|control| {
            self.with_endpoint(ep, |_, endpoint| permit(Call::Free, endpoint.state))?;
            self.destroy_endpoint_at(control, ep.slot(), &mut deferred);
            Ok(())
        });
        self.run_deferred(&mut deferred);
        outcome
    }

    /// Resets a disconnected endpoint to UNCONNECTED and empties both queues.
    ///
    /// An UNCONNECTED endpoint is left unchanged. Completions that were not dequeued are dropped.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): the endpoint is neither DISCONNECTED nor UNCONNECTED.
    /// - INSUFFICIENT_RESOURCES (TEP), INTERNAL_ERROR: the device refused.
    ///
    /// Spec: EPR-01..03, EPX-03
    pub fn ep_reset(&self, ep: EpId) -> Result<()> {
        let mut deferred = Deferred::default();
        let outcome = self.controlled(|control| {
            self.with_parked_queues(ep, |_, endpoint, side| {
                if permit(Call::Reset, endpoint.state)? == Legal::NoOp {
                    return Ok(());
                }
                // A reset may drop unpolled completions, and with them the result of a bind or
                // the return of a shared queue's buffers.
                self.poll_both(endpoint.request_evd, endpoint.receive_evd, &mut deferred);
                if let (Some(key), Some(send)) = (endpoint.queue_pair, &mut endpoint.send) {
                    control
                        .backend()?
                        .reset_queue_pair(key, send, side.queue.as_mut())
                        .map_err(|error| backend_refused(error, Subtype::ResourceTep))?;
                }
                // If the reset keeps them instead, they would occupy entries that later posts
                // need.
                self.poll_both(endpoint.request_evd, endpoint.receive_evd, &mut deferred);
                self.abandon_binds(endpoint.ring.records(&self.shared.records));
                self.forget_work(&Work {
                    ep,
                    reach: endpoint.reach,
                    receive_reach: side.reach,
                    evds: [endpoint.request_evd, endpoint.receive_evd],
                    srq: endpoint.srq,
                });
                let (requests, receives) = (Owner::Requests(ep), Owner::Receives(ep));
                self.renew_ring(requests, &mut endpoint.ring, &mut endpoint.reach);
                self.renew_ring(receives, &mut side.ring, &mut side.reach);
                endpoint.connection.clear();
                endpoint.step(Trigger::Reset);
                Ok(())
            })
        });
        self.run_deferred(&mut deferred);
        outcome
    }

    /// Frees all records of a queue; it keeps its run of records and gives back the others.
    fn renew_ring(&self, owner: Owner, ring: &mut WorkRing, reach: &mut Reach) {
        let records = &self.shared.records;
        for record in records.run(ring.base, ring.capacity) {
            record.release();
        }
        let (before, after) = reach.around(ring.base, ring.capacity);
        record::give_back_all(records, before, owner);
        record::give_back_all(records, after, owner);
        *ring = WorkRing::new(ring.base, ring.capacity);
        *reach = Reach::NONE;
        reach.extend(ring.base, ring.capacity);
    }

    /// Drops an endpoint's posted work and its undequeued completions, on all dispatchers.
    ///
    /// Completions of a freed record are stale. A dispatcher that claimed one before has queued it
    /// by the time its lock is free, so afterwards this call is the only user of the records.
    fn forget_work(&self, work: &Work) {
        let records = &self.shared.records;
        let ep = work.ep.slot();
        for (reach, owner) in work.own() {
            record::rollback_all(records, reach, owner);
        }
        let forget = |slot: &EvdSlot<B::CompletionQueue, L>| {
            let mut walk = None;
            self.walk_ready(slot, |queue| {
                let walk = walk.get_or_insert(ReadyWalk::of(queue));
                queue.forget_endpoint(ep, walk, &self.shared)
            });
        };
        let dispatchers = &self.shared.event_dispatchers;
        let own = work.evds.into_iter().flatten().map(usize::from);
        own.filter_map(|index| dispatchers.get(index))
            .for_each(forget);
        // The endpoint may have had other dispatchers before, and a broken device may report to any
        // of them.
        let left = |(reach, owner)| {
            record::all_of(records, reach, owner).any(|(_, record)| !record.is_free())
        };
        if work.own().into_iter().any(left) || self.has_buffers_of(work.srq, ep) {
            dispatchers.made().iter().for_each(forget);
            if L::PARKS {
                // What is left are binds that dequeues have polled and not reported yet. One that
                // saw its record as claimed has ended once the lock of its dispatcher is taken
                // again.
                record::all_of(records, work.reach, Owner::Requests(work.ep))
                    .for_each(|(_, record)| record.release());
                for dispatcher in dispatchers.made() {
                    dispatcher.queue.with(|_| ());
                }
            }
        }
    }

    /// Returns true if a buffer of a shared queue has a completion of this endpoint.
    fn has_buffers_of(&self, srq: Option<Index>, ep: Index) -> bool {
        let queues = &self.shared.shared_receive_queues;
        let queue = srq.and_then(|srq| queues.get(usize::from(srq)));
        queue.is_some_and(|slot| {
            let (reach, id) = slot.main.with(|queue| (queue.reach, queue.id));
            record::all_of(&self.shared.records, reach, Owner::Shared(id)).any(|(_, record)| {
                !record.is_free() && !record.is_posted() && record.extra() == ep.get()
            })
        })
    }

    /// Frees an endpoint in any state, with everything that it holds.
    pub(crate) fn destroy_endpoint_at(
        &self,
        control: &mut Control<'_, B>,
        index: Index,
        deferred: &mut Deferred,
    ) {
        let Some(slot) = self.shared.endpoints.get(usize::from(index)) else {
            return;
        };
        self.end_quietly(control, slot, deferred);
        let Some(left) = self.clear_slot(control, slot) else {
            return;
        };
        // Completions left in the completion queues would occupy entries that other endpoints get
        // now.
        self.poll_both(left.request_evd, left.receive_evd, deferred);
        self.abandon_binds(left.ring.records(&self.shared.records));
        self.forget_work(&Work {
            ep: left.id,
            reach: left.reach,
            receive_reach: left.receive_reach,
            evds: [left.request_evd, left.receive_evd],
            srq: left.srq,
        });
        // Until here, events of the endpoint may be dequeued; they carry its handle.
        slot.handle.store(0);
        let records = &self.shared.records;
        record::give_back_all(records, left.reach, Owner::Requests(left.id));
        record::give_back_all(records, left.receive_reach, Owner::Receives(left.id));
        // The shared queue may have been resized since the endpoint was created.
        let capacity = left.srq.map_or(left.receive_capacity, |srq| {
            self.unlist_endpoint_on_srq(srq, left.id.slot());
            self.detach_endpoint_from_srq(srq)
        });
        if let Some(evd) = left.receive_evd {
            self.detach_stream(evd, Some(capacity));
        }
        if let Some(evd) = left.request_evd {
            self.detach_stream(evd, Some(left.ring.capacity));
        }
        if let Some(evd) = left.connect_evd {
            self.detach_stream(evd, None);
        }
        self.shared.endpoints.give_back(left.id.handle());
        if let Some(zone) = left.zone {
            self.release_zone(control, zone);
        }
    }

    /// Clears an endpoint's slot, destroys its queue pair and returns its other resources.
    fn clear_slot(&self, control: &mut Control<'_, B>, slot: &SlotOf<B, L>) -> Option<Left> {
        let (left, queue_pair, send, receive) = self.with_parked_slot(slot, |endpoint, side| {
            let left = Left {
                id: endpoint.id,
                ring: endpoint.ring,
                reach: endpoint.reach,
                receive_reach: side.reach,
                receive_evd: endpoint.receive_evd,
                request_evd: endpoint.request_evd,
                connect_evd: endpoint.connect_evd,
                receive_capacity: endpoint.receive_capacity,
                srq: endpoint.srq,
                zone: endpoint.zone,
            };
            let queues = (endpoint.queue_pair, endpoint.send.take(), side.queue.take());
            endpoint.clear_slot(endpoint.generation);
            *side = ReceiveSide::EMPTY;
            (left, queues.0, queues.1, queues.2)
        });
        if left.id.is_null() {
            return None;
        }
        if let (Some(key), Some(send), Ok(backend)) = (queue_pair, send, control.backend()) {
            backend.destroy_queue_pair(key, send, receive);
        }
        Some(left)
    }

    /// Ends an endpoint's connection without an event and polls its completions.
    ///
    /// Polling returns the buffers of a shared queue while the endpoint still exists. A bind that
    /// the device carried out counts as carried out, although its completion is dropped.
    fn end_quietly(
        &self,
        control: &mut Control<'_, B>,
        slot: &EndpointSlot<B::SendQueue, B::ReceiveQueue, L>,
        deferred: &mut Deferred,
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
        self.poll_both(requests, receives, deferred);
    }

    /// Polls the completion queues of both dispatchers of an endpoint.
    fn poll_both(&self, requests: Option<Index>, receives: Option<Index>, deferred: &mut Deferred) {
        let others = receives.filter(|_| receives != requests);
        for evd in requests.into_iter().chain(others) {
            self.poll_slot_at(evd, deferred);
        }
    }
}
