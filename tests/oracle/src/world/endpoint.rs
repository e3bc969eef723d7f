//! Endpoints: states, and the end of connections.

use std::collections::VecDeque;

use dat_core::attributes::EpAttributes;
use dat_core::error::{ErrorKind, Subtype};
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, EpFields, EvdFlags, HandleKind, QualityOfService,
    WATERMARK_INFINITE,
};

use super::event::{Config, Expected, Status, Stream};
use super::{ENDPOINTS, Key, Receive, Request, World};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// Limit on transfers per work queue of the adapters in these runs.
pub(crate) const MOST_TRANSFERS: i32 = 16;
/// Limit on segments per transfer of the adapters in these runs.
pub(crate) const MOST_SEGMENTS: i32 = 4;
/// Limit on bytes per message or RDMA operation of the adapters in these runs.
pub(crate) const MOST_BYTES: u64 = 1 << 31;

/// Attributes of an endpoint, and their legality.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) receives: usize,
    pub(crate) requests: usize,
    pub(crate) receive_segments: usize,
    pub(crate) request_segments: usize,
    pub(crate) reads: usize,
    pub(crate) read_segments: usize,
    pub(crate) write_segments: usize,
    pub(crate) message_size: u64,
    pub(crate) rdma_size: u64,
    pub(crate) receive_flags: CompletionFlags,
    pub(crate) request_flags: CompletionFlags,
    /// Set if the given attributes are legal (EPC-08, EPM-04, GEN-07).
    legal: bool,
    /// Set if the provider has that quality of service (EPK-04).
    has_quality: bool,
}

impl Shape {
    /// Derives the shape from attributes.
    pub(crate) fn of(attributes: &EpAttributes) -> Self {
        let size = |value: i32| usize::try_from(value).unwrap_or(0);
        let transfers = [attributes.max_recv_dtos, attributes.max_request_dtos];
        let segments = [
            attributes.max_recv_iov,
            attributes.max_request_iov,
            attributes.max_rdma_read_iov,
            attributes.max_rdma_write_iov,
        ];
        let receive = attributes.recv_completion_flags;
        let request = attributes.request_completion_flags;
        let plain = [
            CompletionFlags::empty(),
            CompletionFlags::UNSIGNALLED,
            CompletionFlags::EVD_THRESHOLD,
        ];
        let receive_is_legal =
            plain.contains(&receive) || receive == CompletionFlags::SOLICITED_WAIT;
        Self {
            receives: size(attributes.max_recv_dtos),
            requests: size(attributes.max_request_dtos),
            receive_segments: size(attributes.max_recv_iov),
            request_segments: size(attributes.max_request_iov),
            reads: size(attributes.max_rdma_read_out),
            read_segments: size(attributes.max_rdma_read_iov),
            write_segments: size(attributes.max_rdma_write_iov),
            message_size: attributes.max_message_size,
            rdma_size: attributes.max_rdma_size,
            receive_flags: receive,
            request_flags: request,
            legal: transfers
                .iter()
                .all(|&count| (0..=MOST_TRANSFERS).contains(&count))
                && segments
                    .iter()
                    .all(|&count| (0..=MOST_SEGMENTS).contains(&count))
                && [attributes.max_message_size, attributes.max_rdma_size]
                    .iter()
                    .all(|&bytes| bytes <= MOST_BYTES)
                && attributes.srq_soft_hw >= WATERMARK_INFINITE
                && receive_is_legal
                && plain.contains(&request)
                && attributes.qos.is_single(),
            has_quality: attributes.qos == QualityOfService::BEST_EFFORT,
        }
    }
}

/// Slots of a work queue, in posting order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    ring: VecDeque<(u64, SlotState)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// Posted and not completed.
    Pending,
    /// Completed; its event was not dequeued.
    Completed,
    /// Free.
    Free,
}

impl Slots {
    pub(super) fn take(&mut self, post: u64) {
        self.ring.push_back((post, SlotState::Pending));
    }

    fn set(&mut self, post: u64, to: SlotState) {
        for (number, state) in &mut self.ring {
            if *number == post {
                *state = to;
            }
        }
        while self
            .ring
            .front()
            .is_some_and(|(_, state)| *state == SlotState::Free)
        {
            self.ring.pop_front();
        }
    }

    pub(super) fn finish(&mut self, post: u64, silent: bool) {
        self.set(
            post,
            if silent {
                SlotState::Free
            } else {
                SlotState::Completed
            },
        );
    }

    pub(super) fn free(&mut self, post: u64) {
        self.set(post, SlotState::Free);
    }

    /// Returns the number of posts that are not completed.
    pub(crate) fn pending(&self) -> usize {
        self.ring
            .iter()
            .filter(|(_, state)| *state == SlotState::Pending)
            .count()
    }

    /// Returns true if a post is in this queue and not completed.
    pub(crate) fn has_pending(&self, post: u64) -> bool {
        self.ring.contains(&(post, SlotState::Pending))
    }

    /// Returns the number of slots from the oldest occupied one to the newest.
    pub(crate) fn occupied(&self) -> usize {
        self.ring.len()
    }
}

/// Endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Ep {
    pub(crate) side: Side,
    pub(crate) pz: Option<Key>,
    pub(crate) receive: Option<Key>,
    pub(crate) request: Option<Key>,
    pub(crate) connect: Option<Key>,
    pub(crate) srq: Option<Key>,
    pub(crate) shape: Shape,
    /// Attributes that the shape was made from.
    pub(crate) attributes: EpAttributes,
    pub(crate) state: EndpointState,
    /// Set after a graceful disconnect with no work left.
    ///
    /// The state is then DISCONNECT_PENDING or DISCONNECTED until the fabric is idle (E17, E18).
    pub(crate) may_still_be_ending: bool,
    pub(crate) peer: Option<Key>,
    /// Connection or attempt, an index into the attempts.
    pub(crate) attempt: Option<usize>,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) receives: VecDeque<Receive>,
    pub(crate) request_slots: Slots,
    pub(crate) receive_slots: Slots,
    pub(crate) received_any: bool,
    /// Set if created without attributes: no RDMA Reads, unless connecting changes that (EPC-10).
    pub(crate) has_defaults: bool,
}

impl Ep {
    pub(super) fn is_idle(&self) -> bool {
        let flowing = matches!(
            self.state,
            EndpointState::Connected | EndpointState::DisconnectPending
        );
        !(self.may_still_be_ending
            || self.state == EndpointState::DisconnectPending
            || flowing && !self.requests.is_empty())
    }

    /// Returns the number of requests that fit; 0 without a request dispatcher (DTO-02).
    pub(crate) fn request_room(&self) -> usize {
        self.request.map_or(0, |_| self.shape.requests)
    }

    /// Returns the number of receives that fit; 0 without a receive dispatcher (DTO-02).
    pub(crate) fn receive_room(&self) -> usize {
        self.receive.map_or(0, |_| self.shape.receives)
    }

    /// Returns true if a query may report this state.
    pub(crate) fn may_be(&self, state: EndpointState) -> bool {
        state == self.state || self.may_still_be_ending && state == EndpointState::DisconnectPending
    }
}

/// Dispatcher arguments of a call: receive, request, connect.
pub(crate) type Dispatchers = [Option<Option<Key>>; 3];

const ROLES: [(Subtype, EvdFlags); 3] = [
    (Subtype::InvalidHandleEvdRecv, EvdFlags::DTO),
    (Subtype::InvalidHandleEvdRequest, EvdFlags::DTO),
    (Subtype::InvalidHandleEvdConn, EvdFlags::CONNECTION),
];

impl World {
    /// Checks the creation of an endpoint (EPC-02 to EPC-09, EPX-01, EPX-02).
    ///
    /// `srq` is the argument of `ep_create_with_srq`. `defaults`: created without attributes.
    pub(crate) fn check_ep_create(
        &self,
        side: Side,
        pz: Option<Option<Key>>,
        dispatchers: Dispatchers,
        srq: Option<Option<Key>>,
        shape: &Shape,
        defaults: bool,
    ) -> Verdict {
        let mut checks = Checks::default();
        self.check_optional(&mut checks, side, HandleKind::Pz, pz);
        self.check_optional(&mut checks, side, HandleKind::Srq, srq);
        self.check_dispatchers(&mut checks, side, dispatchers);
        let position = if srq.is_some() { 7 } else { 6 };
        checks.parameter(!shape.legal, position);
        checks.other(!shape.has_quality, ErrorKind::ModelNotSupported);
        // DTO-02: no dispatcher, no transfers. Defaults adapt to the dispatchers. The receives of
        // an endpoint with a shared receive queue are not its own.
        let [receive, request, _] = dispatchers;
        let receives = receive.is_none() && shape.receives != 0;
        let requests = request.is_none() && shape.requests != 0;
        if !defaults {
            checks.parameter(receives && srq.is_none() || requests, 0);
            if receives && srq.is_some() {
                checks.possible(ErrorKind::InvalidParameter);
            }
        }
        self.check_sharing(&mut checks, dispatchers, shape, None);
        checks.resource(self.count(side, HandleKind::Ep) >= ENDPOINTS);
        checks.verdict()
    }

    /// Checks dispatchers against their roles (EVC-05, GEN-03).
    fn check_dispatchers(&self, checks: &mut Checks, side: Side, dispatchers: Dispatchers) {
        for (evd, (subtype, stream)) in dispatchers.into_iter().zip(ROLES) {
            let Some(evd) = evd else {
                continue;
            };
            let flags = evd.and_then(|key| self.evds.get(&key)).map(|evd| evd.flags);
            let good = self.is(side, HandleKind::Evd, evd)
                && flags.is_some_and(|flags| flags.contains(stream));
            checks.handle(!good, subtype);
        }
    }

    /// Checks streams that share a dispatcher (EPC-04 to EPC-07, EPX-06).
    fn check_sharing(
        &self,
        checks: &mut Checks,
        dispatchers: Dispatchers,
        shape: &Shape,
        except: Option<Key>,
    ) {
        let [receive, request, connect] = dispatchers.map(Option::flatten);
        let mine = [
            (receive, Config::of(shape.receive_flags)),
            (request, Config::of(shape.request_flags)),
        ];
        let both = receive.is_some() && receive == request;
        checks.parameter(both && mine[0].1 != mine[1].1, 0);
        for (evd, config) in mine {
            let Some(evd) = evd else {
                continue;
            };
            let others = self
                .eps
                .iter()
                .filter(|(key, _)| Some(**key) != except)
                .map(|(_, ep)| ep);
            let mut connections = others.clone().any(|ep| ep.connect == Some(evd));
            connections |= connect == Some(evd)
                || self.psps.values().any(|psp| psp.evd == evd)
                || self.rsps.values().any(|rsp| rsp.evd == evd)
                || self.async_evds.contains(&evd);
            let completions = others.clone().flat_map(|ep| {
                [
                    (ep.receive, Config::of(ep.shape.receive_flags), false),
                    (ep.request, Config::of(ep.shape.request_flags), true),
                ]
            });
            let mut conflict = false;
            for (stream, other, _) in completions {
                conflict |= stream == Some(evd) && other != config;
            }
            conflict |= config == Config::Solicited && both;
            conflict |= config != Config::Threshold && connections;
            checks.parameter(conflict, 0);
            let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
            let open_to_others = self
                .evds
                .get(&evd)
                .is_some_and(|evd| !transfers.contains(evd.flags));
            if config != Config::Threshold && open_to_others {
                // EPC-05 refers to streams that feed the dispatcher. It leaves open if potential
                // ones count.
                checks.possible(ErrorKind::InvalidParameter);
            }
        }
        if let Some(connect) = connect {
            let selective = self
                .eps
                .iter()
                .filter(|(key, _)| Some(**key) != except)
                .flat_map(|(_, ep)| {
                    [
                        (ep.receive, Config::of(ep.shape.receive_flags)),
                        (ep.request, Config::of(ep.shape.request_flags)),
                    ]
                })
                .any(|(evd, config)| evd == Some(connect) && config != Config::Threshold);
            checks.parameter(selective, 0);
        }
    }

    pub(crate) fn ep_create(
        &mut self,
        side: Side,
        pz: Option<Key>,
        dispatchers: [Option<Key>; 3],
        srq: Option<Key>,
        shape: Shape,
        state: EndpointState,
    ) -> Key {
        let named = state == EndpointState::Unconnected;
        let key = self.add(side, HandleKind::Ep, named);
        let [receive, request, connect] = dispatchers;
        let ep = Ep {
            side,
            pz,
            receive,
            request,
            connect,
            srq,
            shape,
            attributes: EpAttributes::DEFAULT,
            state,
            may_still_be_ending: false,
            peer: None,
            attempt: None,
            requests: VecDeque::new(),
            receives: VecDeque::new(),
            request_slots: Slots::default(),
            receive_slots: Slots::default(),
            received_any: false,
            has_defaults: state != EndpointState::Unconnected,
        };
        self.eps.insert(key, ep);
        key
    }

    fn check_state(&self, side: Side, key: Option<Key>, legal: &[EndpointState]) -> Checks {
        let mut checks = self.check_handle(side, HandleKind::Ep, key);
        if let Some(ep) = key.and_then(|key| self.eps.get(&key)) {
            checks.state(!legal.contains(&ep.state), ep.state.subtype());
        }
        checks
    }

    /// Checks a change of the zone (EPM-02).
    pub(crate) fn check_modify_pz(&self, side: Side, ep: Option<Key>, pz: Option<Key>) -> Verdict {
        let legal = [
            EndpointState::Unconnected,
            EndpointState::TentativeConnectionPending,
        ];
        let mut checks = self.check_state(side, ep, &legal);
        // A bad zone is an invalid value (EPM-07) or a bad handle (GEN-03).
        if !self.is(side, HandleKind::Pz, pz) {
            checks.handle(true, Subtype::InvalidHandlePz);
            checks.possible(ErrorKind::InvalidParameter);
        }
        checks.verdict()
    }

    /// Checks a change of dispatchers (EPM-03).
    pub(crate) fn check_modify_evds(
        &self,
        side: Side,
        key: Option<Key>,
        evds: [Option<Key>; 3],
    ) -> Verdict {
        let legal = [
            EndpointState::Unconnected,
            EndpointState::Reserved,
            EndpointState::PassiveConnectionPending,
            EndpointState::TentativeConnectionPending,
        ];
        let mut checks = self.check_state(side, key, &legal);
        let dispatchers = evds.map(Some);
        self.check_dispatchers(&mut checks, side, dispatchers);
        if let Some(ep) = key.and_then(|key| self.eps.get(&key)) {
            self.check_sharing(&mut checks, dispatchers, &ep.shape, key);
        }
        checks.possible(ErrorKind::InvalidParameter);
        checks.verdict()
    }

    /// Checks `ep_modify` (EPM-01 to EPM-06); `merged` are the resulting attributes.
    pub(crate) fn check_modify(
        &self,
        side: Side,
        key: Option<Key>,
        fields: EpFields,
        merged: &EpAttributes,
    ) -> Verdict {
        let provider = EpFields::NUM_TRANSPORT_ATTR
            | EpFields::TRANSPORT_SPECIFIC_ATTR
            | EpFields::NUM_PROVIDER_ATTR
            | EpFields::PROVIDER_SPECIFIC_ATTR;
        let mut checks = self.check_handle(side, HandleKind::Ep, key);
        let Some(ep) = key
            .and_then(|key| self.eps.get(&key))
            .filter(|ep| ep.side == side)
        else {
            return checks.verdict();
        };
        let known = EpFields::from_bits(fields.bits()).is_some();
        checks.parameter(!known, 2);
        checks.parameter(
            fields.intersects(EpFields::all().difference(EpFields::ATTRIBUTES | provider)),
            2,
        );
        let before_connecting = matches!(
            ep.state,
            EndpointState::Unconnected
                | EndpointState::Reserved
                | EndpointState::PassiveConnectionPending
                | EndpointState::TentativeConnectionPending
        );
        checks.state(
            fields.intersects(provider) && ep.state != EndpointState::Unconnected,
            ep.state.subtype(),
        );
        checks.state(
            fields.intersects(EpFields::ATTRIBUTES) && !before_connecting,
            ep.state.subtype(),
        );
        let shape = Shape::of(merged);
        // EPX-05: the segments of a shared receive queue are its own.
        if ep.srq.is_some() && !shape.legal {
            checks.possible(ErrorKind::InvalidParameter);
        } else {
            checks.parameter(!shape.legal, 3);
        }
        checks.other(!shape.has_quality, ErrorKind::ModelNotSupported);
        let receives = fields.contains(EpFields::MAX_RECV_DTOS) && merged.max_recv_dtos != 0;
        let requests = fields.contains(EpFields::MAX_REQUEST_DTOS) && merged.max_request_dtos != 0;
        let missing = receives && ep.receive.is_none() && ep.srq.is_none()
            || requests && ep.request.is_none();
        checks.parameter(missing, 0);
        let dispatchers = [ep.receive, ep.request, ep.connect].map(|evd| evd.map(Some));
        self.check_sharing(&mut checks, dispatchers, &shape, key);
        // The provider decides if the dispatchers have room for the additional completions.
        checks.possible(ErrorKind::InsufficientResources);
        checks.verdict()
    }

    /// Checks `ep_free` (EPF-01).
    pub(crate) fn check_ep_free(&self, side: Side, key: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Ep, key);
        if let Some(ep) = key.and_then(|key| self.eps.get(&key)) {
            let held = matches!(
                ep.state,
                EndpointState::Reserved
                    | EndpointState::PassiveConnectionPending
                    | EndpointState::TentativeConnectionPending
            );
            checks.state(held, ep.state.subtype());
        }
        checks.verdict()
    }

    /// Frees an endpoint (EPF-02): its connection ends, its streams end.
    pub(crate) fn ep_free(&mut self, key: Key) {
        self.may_lose(key, true);
        let Some(ep) = self.eps.remove(&key) else {
            return;
        };
        self.mark_dead(key);
        for request in &ep.requests {
            if let super::Work::Bind { rmr, context } = request.work {
                self.undo_bind(request.post, rmr, context);
            }
        }
        if let (Some(peer), Some(attempt)) = (ep.peer, ep.attempt) {
            self.endings.push((peer, attempt));
        }
    }

    fn may_lose(&mut self, key: Key, with_connection: bool) {
        let receives = Stream::Receives(key);
        let mut shared = 0;
        for evd in self.evds.values_mut() {
            shared += evd
                .streams
                .get(&receives)
                .into_iter()
                .flatten()
                .filter(|e| !e.optional)
                .count();
            evd.may_lose(Stream::Requests(key));
            evd.may_lose(receives);
            if with_connection {
                evd.may_lose(Stream::Connection(key));
            }
        }
        let srq = self.eps.get(&key).and_then(|ep| ep.srq);
        if let Some(srq) = srq.and_then(|srq| self.srqs.get_mut(&srq)) {
            srq.perhaps_returned += shared;
        }
    }

    /// Checks `ep_reset` (EPR-01, EPR-02).
    pub(crate) fn check_ep_reset(&self, side: Side, key: Option<Key>) -> Verdict {
        let legal = [EndpointState::Unconnected, EndpointState::Disconnected];
        self.check_state(side, key, &legal).verdict()
    }

    pub(crate) fn ep_reset(&mut self, key: Key) {
        if self
            .eps
            .get(&key)
            .is_none_or(|ep| ep.state == EndpointState::Unconnected)
        {
            return;
        }
        self.may_lose(key, false);
        if let Some(ep) = self.eps.get_mut(&key) {
            ep.state = EndpointState::Unconnected;
            ep.request_slots = Slots::default();
            ep.receive_slots = Slots::default();
            (ep.peer, ep.attempt) = (None, None);
        }
    }

    /// Checks `ep_disconnect` (EPD-03, EPD-07, EPD-08).
    pub(crate) fn check_disconnect(&self, side: Side, key: Option<Key>) -> Verdict {
        let legal = [
            EndpointState::ActiveConnectionPending,
            EndpointState::CompletionPending,
            EndpointState::Connected,
            EndpointState::DisconnectPending,
            EndpointState::Disconnected,
        ];
        self.check_state(side, key, &legal).verdict()
    }

    /// Disconnects an endpoint (E15 to E20, E25).
    pub(crate) fn disconnect(&mut self, key: Key, graceful: bool) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        match ep.state {
            EndpointState::Connected if graceful && !ep.requests.is_empty() => {
                ep.state = EndpointState::DisconnectPending;
            }
            EndpointState::Connected if graceful => {
                self.end_locally(key);
                if let Some(ep) = self.eps.get_mut(&key) {
                    ep.may_still_be_ending = true;
                }
            }
            EndpointState::DisconnectPending if graceful => {}
            EndpointState::Disconnected => {}
            _ => self.end_locally(key),
        }
    }

    fn end_locally(&mut self, key: Key) {
        let ep = self.eps.get(&key);
        let notice = ep.and_then(|ep| Some((ep.peer?, ep.attempt?)));
        self.endings.extend(notice);
        self.enter_disconnected(key, &[ConnectionEventKind::Disconnected]);
    }

    /// Completes graceful disconnects (E18).
    pub(super) fn finish_disconnects(&mut self) {
        for ep in self.eps.values_mut() {
            ep.may_still_be_ending = false;
        }
        let ending: Vec<Key> = self
            .eps
            .iter()
            .filter(|(_, ep)| {
                ep.state == EndpointState::DisconnectPending && ep.requests.is_empty()
            })
            .map(|(&key, _)| key)
            .collect();
        for key in ending {
            self.end_locally(key);
        }
    }

    /// Delivers ended connections to the peers (E21).
    pub(super) fn deliver_endings(&mut self) {
        for (key, attempt) in std::mem::take(&mut self.endings) {
            let flowing = self.eps.get(&key).is_some_and(|ep| {
                ep.attempt == Some(attempt)
                    && matches!(
                        ep.state,
                        EndpointState::Connected | EndpointState::DisconnectPending
                    )
            });
            if flowing {
                self.enter_disconnected(key, &[ConnectionEventKind::Disconnected]);
            }
        }
    }

    /// Breaks a connection on both sides (E22).
    pub(super) fn break_connection(&mut self, key: Key) {
        let peer = self.eps.get(&key).and_then(|ep| ep.peer);
        self.enter_disconnected(key, &[ConnectionEventKind::Broken]);
        if let Some(peer) = peer {
            self.enter_disconnected(peer, &[ConnectionEventKind::Broken]);
        }
    }

    /// Enters DISCONNECTED: flushes all posts (section 1.4) and queues the event.
    pub(super) fn enter_disconnected(&mut self, key: Key, kinds: &[ConnectionEventKind]) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        ep.state = EndpointState::Disconnected;
        ep.may_still_be_ending = false;
        ep.peer = None;
        let connect = ep.connect;
        let requests = std::mem::take(&mut ep.requests);
        let receives = std::mem::take(&mut ep.receives);
        let flushed = Status::Is(DtoStatus::Flushed);
        for request in requests {
            self.finish_request(key, &request, flushed);
        }
        for receive in receives {
            self.finish_receive(key, &receive, flushed, 0);
        }
        let event = Expected::Connection {
            kinds: kinds.to_vec(),
            ep: key,
            private_data: Vec::new(),
        };
        self.raise(connect, Stream::Connection(key), event);
    }

    /// Checks the two limits of `ep_set_watermark` (EPH-01).
    pub(crate) fn check_watermark(
        &self,
        side: Side,
        ep: Option<Key>,
        soft: i32,
        hard: i32,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Ep, ep);
        checks.parameter(soft < WATERMARK_INFINITE, 2);
        checks.parameter(hard < WATERMARK_INFINITE, 3);
        checks.verdict()
    }

    pub(super) fn free_request(&mut self, key: Key, post: u64) {
        if let Some(ep) = self.eps.get_mut(&key) {
            ep.request_slots.free(post);
        }
    }

    pub(super) fn free_receive(&mut self, key: Key, post: u64) {
        if let Some(ep) = self.eps.get_mut(&key) {
            ep.receive_slots.free(post);
        }
        self.free_shared(post);
    }
}
