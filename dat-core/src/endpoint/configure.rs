//! Configures an endpoint: its zone, dispatchers, records and queue pair.
//!
//! Creation and modification share this code. A failed call leaves the endpoint as it was.

use super::endings::{EndpointOf, SlotOf};
use super::endpoint::{Limit, RECEIVE};
use super::limits::{count, refused_receive_flags, refused_request_flags, size};
use super::state::{Call, Legal, legal};
use super::{Endpoint, ReceiveSide, RequestLimits, WorkRing};
use crate::adapter::{Control, Ia};
use crate::attributes::EpAttributes;
use crate::backend::{Backend, BackendError, QueuePairKey, QueuePairRequest, backend_refused};
use crate::error::{Cause, Error, Result, Subtype};
use crate::event::EvdConfig;
use crate::flags::{CompletionFlags, EvdFlags};
use crate::id::{EvdId, Index, PzId};
use crate::memory::zone_seal;
use crate::record::{self, Owner, Posting, Report};
use crate::sync::RawLock;

/// Receive side of an endpoint of backend `B`.
pub(super) type ReceiveSideOf<B> = ReceiveSide<<B as Backend>::ReceiveQueue>;

/// Requested configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) pz: Option<PzId>,
    pub(super) receive: Option<EvdId>,
    pub(super) request: Option<EvdId>,
    pub(super) connect: Option<EvdId>,
    pub(super) attributes: &'a EpAttributes,
}

impl Wanted<'_> {
    /// Returns the depth of the request queue.
    fn requests(&self) -> u32 {
        self.request
            .map_or(0, |_| count(self.attributes.max_request_dtos))
    }

    /// Returns the streams, with `capacity` completions of receives.
    fn streams(&self, capacity: u32) -> Streams {
        Streams {
            receive: self.receive.map(|evd| {
                let config = Endpoint::<()>::receive_config(self.attributes);
                (evd, config, capacity)
            }),
            request: self.request.map(|evd| {
                let config = Endpoint::<()>::request_config(self.attributes);
                (evd, config, self.requests())
            }),
            connect: self.connect,
        }
    }
}

/// Streams of an endpoint, with configuration and capacity for their dispatchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streams {
    receive: Option<(EvdId, EvdConfig, u32)>,
    request: Option<(EvdId, EvdConfig, u32)>,
    connect: Option<EvdId>,
}

/// Indices of the dispatchers of attached streams.
#[derive(Clone, Copy, Debug, Default)]
struct Attached {
    receive: Option<Index>,
    request: Option<Index>,
    connect: Option<Index>,
}

/// A ring that will replace another one.
#[derive(Clone, Copy, Debug)]
struct NewRing {
    base: u32,
    capacity: u32,
    /// Set if the old run is freed; otherwise it still holds receives.
    given_back: bool,
}

/// Prepared changes, which can be undone.
#[derive(Debug)]
struct Prepared {
    attached: Attached,
    requests: Option<NewRing>,
    receives: Option<NewRing>,
    /// Maximum number of receive completions.
    capacity: u32,
    /// Set if an existing queue pair must change.
    changed: bool,
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Configures the endpoint as wanted; `argument` is the position of the zone in the call.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ, EVD roles): a handle is not live, or the dispatcher lacks the stream.
    /// - INVALID_PARAMETER: a dispatcher cannot merge the streams, or the zone differs from the
    ///   shared queue's.
    /// - INSUFFICIENT_RESOURCES (TEP): records or device resources are exhausted.
    /// - INVALID_STATE: the device cannot keep the posted receives.
    pub(super) fn configure(
        &self,
        control: &mut Control<'_, B>,
        slot: &SlotOf<B, L>,
        endpoint: &mut EndpointOf<B>,
        side: &mut ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        invalid: Error,
    ) -> Result<()> {
        let held = self.change_zone(control, endpoint, wanted.pz, invalid)?;
        let outcome = self.configure_in_zone(control, slot, endpoint, side, wanted, held);
        // Releases the zone no longer used: the old one after success, the new one after failure.
        if outcome.is_ok() {
            if endpoint.zone != held
                && let Some(old) = endpoint.zone
            {
                self.release_zone(control, old);
            }
            endpoint.zone = held;
        } else if endpoint.zone != held
            && let Some(new) = held
        {
            self.release_zone(control, new);
        }
        outcome
    }

    /// Retains the wanted zone, unless the endpoint already has it; returns its index.
    #[inline(never)]
    fn change_zone(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &EndpointOf<B>,
        wanted: Option<PzId>,
        invalid: Error,
    ) -> Result<Option<u16>> {
        let Some(pz) = wanted else {
            return Ok(None);
        };
        let index = pz.index() as u16;
        control.zone(pz)?;
        if let Some(srq) = endpoint.srq
            && self.zone_of_srq(srq) != Some(index)
            && !control
                .backend()?
                .provider_attributes()
                .srq_ep_pz_difference_supported
        {
            return Err(invalid.because(Cause::ZoneMismatch));
        }
        if endpoint.zone == Some(index) {
            return Ok(Some(index));
        }
        self.retain_zone(control, pz).map(Some)
    }

    fn zone_of_srq(&self, srq: Index) -> Option<u16> {
        let slot = self.shared.shared_receive_queues.get(usize::from(srq))?;
        Some(slot.main.with(|queue| queue.zone))
    }

    /// Returns the maximum number of completions of a shared receive queue's buffers.
    fn capacity_of_srq(&self, srq: Index) -> u32 {
        self.shared
            .shared_receive_queues
            .get(usize::from(srq))
            .map_or(0, |slot| slot.main.with(|queue| queue.max_receives))
    }

    /// Prepares the change, creates or changes the queue pair, and finishes.
    ///
    /// Each step is outlined, so its stack is free when the next one begins: creating a queue pair
    /// takes much stack.
    fn configure_in_zone(
        &self,
        control: &mut Control<'_, B>,
        slot: &SlotOf<B, L>,
        endpoint: &mut EndpointOf<B>,
        side: &mut ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        zone: Option<u16>,
    ) -> Result<()> {
        let prepared = self.prepare(control, endpoint, side, wanted, zone);
        // Borrowed: a copy takes stack.
        let prepared = prepared.as_ref().map_err(|error| *error)?;
        if let Some(zone) = zone
            && (prepared.changed || endpoint.queue_pair.is_none())
        {
            let attached = &prepared.attached;
            let fitted = self.fit_queue_pair(control, endpoint, side, zone, attached, wanted);
            if let Err(error) = fitted {
                self.undo(control, endpoint, side, wanted, prepared);
                return Err(error);
            }
        }
        self.finish(endpoint, side, wanted, zone, prepared);
        slot.set_shared_receive_report(receive_report(wanted.attributes));
        Ok(())
    }

    /// Exchanges the streams and allocates records for the rings.
    #[inline(never)]
    fn prepare(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &EndpointOf<B>,
        side: &ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        zone: Option<u16>,
    ) -> Result<Prepared> {
        let attributes = wanted.attributes;
        // Includes flushed receives that are not dequeued: their records are in use.
        let outstanding = record::all_of(
            &self.shared.records,
            side.reach,
            Owner::Receives(endpoint.id),
        )
        .filter(|(_, record)| !record.is_free())
        .count() as u32;
        let receives = match (endpoint.srq, wanted.receive) {
            (None, Some(_)) => count(attributes.max_recv_dtos),
            _ => 0,
        };
        let capacity = if let Some(srq) = endpoint.srq {
            self.capacity_of_srq(srq)
        } else if receives == side.ring.capacity {
            endpoint.receive_capacity.max(receives)
        } else {
            receives.saturating_add(outstanding)
        };
        let old = self.streams_of(endpoint);
        let new = wanted.streams(capacity);
        let attached = self.exchange_streams(control, endpoint, &old, &new)?;
        let changed = endpoint.zone != zone
            || endpoint.attributes != *attributes
            || old.receive != new.receive
            || old.request != new.request;
        let mut prepared = Prepared {
            attached,
            requests: None,
            receives: None,
            capacity,
            changed,
        };
        let rings = self.change_rings(endpoint, side, wanted, receives, outstanding, &mut prepared);
        if let Err(error) = rings {
            self.restore_streams(control, &prepared.attached, &old, &new);
            return Err(error);
        }
        Ok(prepared)
    }

    /// Allocates records for both rings, or for neither.
    fn change_rings(
        &self,
        endpoint: &EndpointOf<B>,
        side: &ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        receives: u32,
        outstanding: u32,
        prepared: &mut Prepared,
    ) -> Result<()> {
        let owner = endpoint.id;
        let (ring, capacity) = (endpoint.ring, wanted.requests());
        prepared.requests = self.change_ring(Owner::Requests(owner), ring, capacity, 0)?;
        let receive_ring =
            self.change_ring(Owner::Receives(owner), side.ring, receives, outstanding);
        match receive_ring {
            Ok(ring) => prepared.receives = ring,
            Err(error) => {
                self.undo_ring(Owner::Requests(owner), ring, &prepared.requests);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Undoes all prepared changes.
    #[cold]
    #[inline(never)]
    fn undo(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &EndpointOf<B>,
        side: &ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        prepared: &Prepared,
    ) {
        let owner = endpoint.id;
        // In the reverse order, since the new receives may have records of the former requests.
        self.undo_ring(Owner::Receives(owner), side.ring, &prepared.receives);
        self.undo_ring(Owner::Requests(owner), endpoint.ring, &prepared.requests);
        // The endpoint is unchanged, so these are the streams from before.
        let old = self.streams_of(endpoint);
        let new = wanted.streams(prepared.capacity);
        self.restore_streams(control, &prepared.attached, &old, &new);
    }

    /// Applies the prepared changes to the endpoint.
    #[inline(never)]
    fn finish(
        &self,
        endpoint: &mut EndpointOf<B>,
        side: &mut ReceiveSideOf<B>,
        wanted: &Wanted<'_>,
        zone: Option<u16>,
        prepared: &Prepared,
    ) {
        let attributes = wanted.attributes;
        let attached = &prepared.attached;
        self.finish_ring(&mut endpoint.ring, &prepared.requests);
        self.finish_ring(&mut side.ring, &prepared.receives);
        endpoint
            .reach
            .extend(endpoint.ring.base, endpoint.ring.capacity);
        side.reach.extend(side.ring.base, side.ring.capacity);
        endpoint.receive_evd = attached.receive;
        endpoint.request_evd = attached.request;
        endpoint.refuses_binds = attached
            .request
            .is_some_and(|evd| !self.takes(evd, EvdFlags::RMR_BIND));
        endpoint.connect_evd = attached.connect;
        endpoint.receive_capacity = prepared.capacity;
        endpoint.attributes = *attributes;
        set_limits(endpoint, side, zone);
    }

    /// Returns the current streams of the endpoint.
    #[inline(never)]
    fn streams_of(&self, endpoint: &EndpointOf<B>) -> Streams {
        let attributes = &endpoint.attributes;
        let capacity = endpoint
            .srq
            .map_or(endpoint.receive_capacity, |srq| self.capacity_of_srq(srq));
        Streams {
            receive: endpoint.receive_evd.map(|evd| {
                let config = EndpointOf::<B>::receive_config(attributes);
                (self.evd_id_at(evd), config, capacity)
            }),
            request: endpoint.request_evd.map(|evd| {
                let config = EndpointOf::<B>::request_config(attributes);
                (self.evd_id_at(evd), config, endpoint.ring.capacity)
            }),
            connect: endpoint.connect_evd.map(|evd| self.evd_id_at(evd)),
        }
    }

    /// Detaches the old streams and attaches the new ones.
    ///
    /// All old streams are detached first, since they determine the streams that a dispatcher
    /// accepts.
    #[inline(never)]
    fn exchange_streams(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &EndpointOf<B>,
        old: &Streams,
        new: &Streams,
    ) -> Result<Attached> {
        let present = Attached {
            receive: endpoint.receive_evd,
            request: endpoint.request_evd,
            connect: endpoint.connect_evd,
        };
        if old == new {
            return Ok(present);
        }
        self.detach_streams(&present, old);
        let outcome = self.attach_streams(control.backend()?, new);
        if outcome.is_err() {
            self.attach_again(control, old);
        }
        outcome
    }

    #[inline(never)]
    fn restore_streams(
        &self,
        control: &mut Control<'_, B>,
        attached: &Attached,
        old: &Streams,
        new: &Streams,
    ) {
        if old != new {
            self.detach_streams(attached, new);
            self.attach_again(control, old);
        }
    }

    /// Attaches streams again that were just detached.
    fn attach_again(&self, control: &mut Control<'_, B>, streams: &Streams) {
        if let Ok(backend) = control.backend() {
            // Cannot fail: the control lock was held since they were detached, and completion
            // queues never shrink.
            let _fits = self.attach_streams(backend, streams);
        }
    }

    fn attach_streams(&self, backend: &mut B, streams: &Streams) -> Result<Attached> {
        let mut attached = Attached::default();
        let outcome = self.attach_each(backend, streams, &mut attached);
        if outcome.is_err() {
            self.detach_streams(&attached, streams);
        }
        outcome.map(|()| attached)
    }

    fn attach_each(
        &self,
        backend: &mut B,
        streams: &Streams,
        attached: &mut Attached,
    ) -> Result<()> {
        if let Some((evd, config, capacity)) = streams.receive {
            attached.receive = Some(self.attach_stream(
                backend,
                evd,
                EvdFlags::DTO,
                Subtype::InvalidHandleEvdRecv,
                Some((config, capacity)),
            )?);
        }
        if let Some((evd, config, capacity)) = streams.request {
            attached.request = Some(self.attach_stream(
                backend,
                evd,
                EvdFlags::DTO,
                Subtype::InvalidHandleEvdRequest,
                Some((config, capacity)),
            )?);
        }
        if let Some(evd) = streams.connect {
            attached.connect = Some(self.attach_stream(
                backend,
                evd,
                EvdFlags::CONNECTION,
                Subtype::InvalidHandleEvdConn,
                None,
            )?);
        }
        Ok(())
    }

    fn detach_streams(&self, attached: &Attached, streams: &Streams) {
        let capacity =
            |stream: Option<(EvdId, EvdConfig, u32)>| stream.map(|(_, _, capacity)| capacity);
        if let Some(evd) = attached.receive {
            self.detach_stream(evd, capacity(streams.receive));
        }
        if let Some(evd) = attached.request {
            self.detach_stream(evd, capacity(streams.request));
        }
        if let Some(evd) = attached.connect {
            self.detach_stream(evd, None);
        }
    }

    /// Allocates records for a queue of another length; `None` if the length is unchanged.
    ///
    /// Posted receives and undequeued completions keep their old records, which are freed when the
    /// endpoint is reset or freed.
    #[inline(never)]
    fn change_ring(
        &self,
        owner: Owner,
        old: WorkRing,
        capacity: u32,
        outstanding: u32,
    ) -> Result<Option<NewRing>> {
        let records = &self.shared.records;
        if capacity == old.capacity {
            return Ok(None);
        }
        let given_back = outstanding == 0;
        if given_back {
            record::give_back(records, old.base, old.capacity);
        }
        match record::allocate(records, owner, capacity) {
            Some(base) => Ok(Some(NewRing {
                base,
                capacity,
                given_back,
            })),
            None => {
                if given_back {
                    // The run that was just freed is still free.
                    record::allocate_at(records, owner, old.base, old.capacity);
                }
                Err(Error::insufficient_resources(Subtype::ResourceTep)
                    .because(Cause::RecordsExhausted))
            }
        }
    }

    fn undo_ring(&self, owner: Owner, old: WorkRing, new: &Option<NewRing>) {
        let records = &self.shared.records;
        if let Some(new) = new {
            record::give_back(records, new.base, new.capacity);
            if new.given_back {
                record::allocate_at(records, owner, old.base, old.capacity);
            }
        }
    }

    fn finish_ring(&self, ring: &mut WorkRing, new: &Option<NewRing>) {
        let Some(new) = new else {
            return;
        };
        if !new.given_back {
            let old = *ring;
            for index in old.base..old.base.saturating_add(old.capacity) {
                let free = self
                    .shared
                    .records
                    .get(index as usize)
                    .is_some_and(record::RecordSlot::is_free);
                if free {
                    record::give_back(&self.shared.records, index, 1);
                }
            }
        }
        *ring = WorkRing::new(new.base, new.capacity);
    }

    /// Creates or changes the queue pair.
    #[inline(never)]
    fn fit_queue_pair(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &mut EndpointOf<B>,
        side: &mut ReceiveSideOf<B>,
        zone: u16,
        attached: &Attached,
        wanted: &Wanted<'_>,
    ) -> Result<()> {
        let domain = control
            .protection_zones
            .get(usize::from(zone))
            .map(|slot| slot.domain)
            .ok_or(Error::invalid_handle(Subtype::InvalidHandlePz))?;
        let shared_receive_queue = endpoint
            .srq
            .and_then(|srq| self.shared.shared_receive_queues.get(usize::from(srq)))
            .map(|slot| slot.main.with(|queue| queue.key));
        let mut request = QueuePairRequest {
            token: endpoint.id.handle().to_raw(),
            domain,
            request_queue: attached.request.map(Index::get),
            receive_queue: attached.receive.map(Index::get),
            shared_receive_queue,
            attributes: *wanted.attributes,
            vouched: B::READS_AT_POST,
        };
        if wanted.receive.is_none() {
            request.attributes.max_recv_dtos = 0;
        }
        if wanted.request.is_none() {
            request.attributes.max_request_dtos = 0;
        }
        let backend = control.backend()?;
        if endpoint.queue_pair.is_some() {
            change_queue_pair(backend, endpoint, side, &request)
        } else {
            make_queue_pair(backend, endpoint, side, &request)
        }
    }
}

/// Changes the queue pair of an endpoint. Outlined, like the next function: queues are large.
#[inline(never)]
fn change_queue_pair<B: Backend>(
    backend: &mut B,
    endpoint: &mut EndpointOf<B>,
    side: &mut ReceiveSideOf<B>,
    request: &QueuePairRequest,
) -> Result<()> {
    let (Some(key), Some(send)) = (endpoint.queue_pair, &mut endpoint.send) else {
        return Err(Error::internal(Cause::EndpointState));
    };
    backend
        .modify_queue_pair(key, send, side.queue.as_mut(), request)
        .map_err(|error| match error {
            BackendError::State => endpoint.state.forbids(),
            other => backend_refused(other, Subtype::ResourceTep),
        })
}

/// Creates the queue pair of an endpoint.
#[inline(never)]
fn make_queue_pair<B: Backend>(
    backend: &mut B,
    endpoint: &mut EndpointOf<B>,
    side: &mut ReceiveSideOf<B>,
    request: &QueuePairRequest,
) -> Result<()> {
    let refused = |error| backend_refused(error, Subtype::ResourceTep);
    // Creates the queues in place, and removes them from there on failure: each copy takes stack.
    let key = backend
        .create_queue_pair_at(request, &mut endpoint.send, &mut side.queue)
        .map_err(refused)?;
    let soft = u32::try_from(endpoint.soft_high_watermark).ok();
    let hard = u32::try_from(endpoint.hard_high_watermark).ok();
    if (soft.is_some() || hard.is_some())
        && let Err(error) = backend.set_high_watermarks(key, soft, hard)
    {
        take_back(backend, endpoint, side, key);
        return Err(refused(error));
    }
    endpoint.queue_pair = Some(key);
    Ok(())
}

/// Destroys a new queue pair after a failure.
#[inline(never)]
fn take_back<B: Backend>(
    backend: &mut B,
    endpoint: &mut EndpointOf<B>,
    side: &mut ReceiveSideOf<B>,
    key: QueuePairKey,
) {
    if let Some(send) = endpoint.send.take() {
        let receive = side.queue.take();
        backend.destroy_queue_pair(key, send, receive);
    }
}

/// Updates the limits that posts check, after a change of attributes or zone.
pub(super) fn set_limits<S, R>(
    endpoint: &mut Endpoint<S>,
    side: &mut ReceiveSide<R>,
    zone: Option<u16>,
) {
    let attributes = &endpoint.attributes;
    let segments = count(attributes.max_request_iov) as usize;
    endpoint.zone_seal = zone.map_or(0, zone_seal);
    endpoint.refused_flags = refused_request_flags(attributes);
    let write_segments = segments.min(count(attributes.max_rdma_write_iov) as usize);
    let read_segments = if endpoint.reads_nothing() {
        0
    } else {
        segments.min(count(attributes.max_rdma_read_iov) as usize)
    };
    let most = |segments, bytes| match segments {
        0 => Limit::NONE,
        _ => Limit::new(size(bytes)),
    };
    endpoint.limits = RequestLimits {
        send_segments: segments,
        write_segments,
        read_segments,
        send_size: most(segments, attributes.max_message_size),
        write_size: most(write_segments, attributes.max_rdma_size),
        read_size: most(read_segments, attributes.max_rdma_size),
    };
    side.zone_seal = endpoint.zone_seal;
    side.refused_flags = refused_receive_flags(attributes);
    side.max_segments = count(attributes.max_recv_iov) as usize;
    side.posting = Posting::new(RECEIVE, receive_report(attributes));
    let postable = legal(Call::PostReceive, endpoint.state) != Legal::Invalid;
    side.postable = if postable && side.queue.is_some() {
        endpoint.id
    } else {
        endpoint.id.never_matching()
    };
    endpoint.refresh_postable();
}

/// Returns the report mode of receives, without the flag of the post.
pub(super) fn receive_report(attributes: &EpAttributes) -> Report {
    if attributes.recv_completion_flags == CompletionFlags::SOLICITED_WAIT {
        Report::SOLICITED
    } else {
        Report::NOTIFY
    }
}
