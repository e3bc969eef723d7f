//! An adapter on the test backend, with a zone, dispatchers and endpoints in any state.

use std::vec::Vec;

use crate::Ia;
use crate::attributes::{EpAttributes, IaAddress, IaAttributes, ProviderAttributes};
use crate::backend::{
    ConnectFailure, ControlEvent, Extensions, PrivateData, QueuePairKey, RequestKey,
};
use crate::connection::PspParam;
use crate::endpoint::ConnectParam;
use crate::event::{ConnectionEventKind, Event};
use crate::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, CrFields, EndpointState, EpFields, EvdFlags,
    PspFields, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use crate::id::{CrId, EpId, EvdId, Handle, PspId, PzId, RspId};
use crate::record::{self, NO_RECORD, Owner, Reach};
use crate::sync::NoLock;
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend, TestStorage};
use crate::time::Instant;

/// Connection qualifier of the tests' service points.
pub(crate) const QUALIFIER: u64 = 77;
/// Address of the peer.
pub(crate) const PEER: IaAddress = IaAddress::Node(2);
/// Attributes of a small endpoint.
pub(crate) const SMALL: EpAttributes = EpAttributes {
    max_recv_dtos: 4,
    max_request_dtos: 4,
    max_rdma_read_out: 1,
    ..EpAttributes::DEFAULT
};

/// Returns true if an adapter has `count` free records; takes them.
pub(crate) fn has_records(ia: &Ia<'_, TestBackend, NoLock>, count: u32) -> bool {
    let owner = Owner::Requests(EpId::new(0, 1, 7.into()));
    record::allocate_list(&ia.shared.records, owner, count, NO_RECORD, &mut {
        Reach::NONE
    })
    .is_some()
}

/// The adapter under test and its device.
pub(crate) struct Bench<'s> {
    pub(crate) ia: Ia<'s, TestBackend, NoLock>,
    pub(crate) device: TestBackend,
    pub(crate) pz: PzId,
    /// Dispatcher of data transfers and binds.
    pub(crate) data: EvdId,
    pub(crate) connections: EvdId,
    pub(crate) requests: EvdId,
    next_request: core::cell::Cell<usize>,
}

impl<'s> Bench<'s> {
    pub(crate) fn new(storage: &'s mut TestStorage) -> Self {
        Self::with(storage, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES)
    }

    pub(crate) fn with(
        storage: &'s mut TestStorage,
        adapter: IaAttributes,
        provider: ProviderAttributes,
    ) -> Self {
        Self::on(TestBackend::new(adapter, provider), storage)
    }

    /// Creates an adapter on a device with extended operations.
    pub(crate) fn extended(storage: &'s mut TestStorage, extensions: Extensions) -> Self {
        let device = TestBackend::new(IA_ATTRIBUTES, PROVIDER_ATTRIBUTES);
        device.set_extensions(extensions);
        Self::on(device, storage)
    }

    fn on(device: TestBackend, storage: &'s mut TestStorage) -> Self {
        let ia = Ia::open(device.clone(), storage.lend(), 8).unwrap();
        let pz = ia.pz_create().unwrap();
        let data = ia
            .evd_create(8, None, EvdFlags::DTO | EvdFlags::RMR_BIND)
            .unwrap();
        let connections = ia.evd_create(8, None, EvdFlags::CONNECTION).unwrap();
        let requests = ia.evd_create(2, None, EvdFlags::CR).unwrap();
        Self {
            ia,
            device,
            pz,
            data,
            connections,
            requests,
            next_request: core::cell::Cell::new(100),
        }
    }

    /// Creates an unconnected endpoint with zone and dispatchers.
    pub(crate) fn endpoint(&self) -> EpId {
        self.ia
            .ep_create(
                Some(self.pz),
                Some(self.data),
                Some(self.data),
                Some(self.connections),
                Some(&SMALL),
            )
            .unwrap()
    }

    /// Returns the device's queue pair of an endpoint.
    pub(crate) fn pair(&self, ep: EpId) -> QueuePairKey {
        self.device.pair(ep.handle().to_raw()).unwrap()
    }

    /// Raises an event of the device and lets the core handle it.
    pub(crate) fn raise(&self, event: ControlEvent) {
        self.device.push_control(event);
        self.ia.progress(Instant::ZERO);
    }

    pub(crate) fn param(&self) -> ConnectParam<'static> {
        ConnectParam {
            address: PEER,
            qualifier: QUALIFIER,
            timeout: TIMEOUT_INFINITE,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        }
    }

    /// Starts a connection of `ep`.
    pub(crate) fn connect(&self, ep: EpId) {
        self.ia
            .ep_connect(ep, &self.param(), Instant::ZERO)
            .unwrap();
    }

    /// Reports that the peer accepted the connection of `ep`.
    pub(crate) fn establish(&self, ep: EpId) {
        self.raise(ControlEvent::Established {
            queue_pair: ep.handle().to_raw(),
            private_data: PrivateData::from_slice(b"welcome").unwrap(),
        });
    }

    /// Creates a connected endpoint and dequeues its ESTABLISHED event.
    pub(crate) fn connected(&self) -> EpId {
        let ep = self.endpoint();
        self.connect(ep);
        self.establish(ep);
        assert_eq!(
            self.connection_event(),
            Some((ConnectionEventKind::Established, ep, 7))
        );
        ep
    }

    /// Creates a public service point whose requests name no endpoint.
    pub(crate) fn listen(&self, qualifier: u64) -> PspId {
        let psp = self
            .ia
            .psp_create(qualifier, self.requests, PspFlags::Consumer);
        psp.unwrap()
    }

    /// Raises a connection request at a service point; returns the backend's key of the request.
    pub(crate) fn ask(&self, service_point: Handle) -> RequestKey {
        let request = RequestKey(self.next_request.get());
        self.next_request.set(request.0 + 1);
        self.raise(ControlEvent::ConnectionRequest {
            listener: service_point.to_raw(),
            request,
            remote: PEER,
            remote_port: 5,
            local: IaAddress::Node(1),
            private_data: PrivateData::from_slice(b"please").unwrap(),
        });
        request
    }

    /// Dequeues the next connection request event.
    pub(crate) fn request_event(&self) -> Option<CrId> {
        match self.ia.evd_dequeue(self.requests) {
            Ok(Event::ConnectionRequest { cr, .. }) => Some(cr),
            Ok(other) => panic!("{other:?} is no connection request"),
            Err(_) => None,
        }
    }

    /// Creates an endpoint that is reserved for a service point.
    pub(crate) fn reserved(&self, qualifier: u64) -> (EpId, RspId) {
        let ep = self.endpoint();
        let rsp = self
            .ia
            .rsp_create(qualifier, Some(ep), self.requests)
            .unwrap();
        (ep, rsp)
    }

    /// Creates an endpoint in a state, with its connection request if the state has one.
    pub(crate) fn in_state(&self, state: EndpointState) -> (EpId, Option<CrId>) {
        self.in_state_at(QUALIFIER, state)
    }

    /// As `in_state`, with service points on another qualifier.
    pub(crate) fn in_state_at(&self, qualifier: u64, state: EndpointState) -> (EpId, Option<CrId>) {
        match state {
            EndpointState::Unconnected => (self.endpoint(), None),
            EndpointState::Reserved => (self.reserved(qualifier).0, None),
            EndpointState::PassiveConnectionPending => {
                let (ep, rsp) = self.reserved(qualifier);
                self.ask(rsp.handle());
                (ep, self.request_event())
            }
            EndpointState::TentativeConnectionPending => {
                let psp = self
                    .ia
                    .psp_create(qualifier, self.requests, PspFlags::Provider)
                    .unwrap();
                self.ask(psp.handle());
                let cr = self.request_event().unwrap();
                let ep = self.ia.cr_query(cr, CrFields::all()).unwrap().local_ep;
                (ep.unwrap(), Some(cr))
            }
            EndpointState::ActiveConnectionPending => {
                let ep = self.endpoint();
                self.connect(ep);
                (ep, None)
            }
            EndpointState::CompletionPending => {
                let (ep, cr) = self.in_state_at(qualifier, EndpointState::PassiveConnectionPending);
                self.ia.cr_accept(cr.unwrap(), None, &[]).unwrap();
                (ep, None)
            }
            EndpointState::Connected => (self.connected(), None),
            EndpointState::DisconnectPending => {
                let ep = self.connected();
                self.send(ep, 1);
                self.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
                (ep, None)
            }
            EndpointState::Disconnected => {
                let ep = self.connected();
                self.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
                self.connection_events();
                (ep, None)
            }
        }
    }

    /// Posts an empty Send.
    pub(crate) fn send(&self, ep: EpId, cookie: u64) {
        self.ia
            .post_send(ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }

    /// Posts an empty receive.
    pub(crate) fn receive(&self, ep: EpId, cookie: u64) {
        self.ia
            .post_recv(ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }

    pub(crate) fn state(&self, ep: EpId) -> EndpointState {
        self.ia.ep_query(ep, EpFields::all()).unwrap().state
    }

    pub(crate) fn connection_event(&self) -> Option<(ConnectionEventKind, EpId, u16)> {
        match self.ia.evd_dequeue(self.connections) {
            Ok(Event::Connection {
                kind,
                ep,
                private_data_size,
            }) => Some((kind, ep, private_data_size)),
            Ok(other) => panic!("{other:?} is no connection event"),
            Err(_) => None,
        }
    }

    pub(crate) fn connection_events(&self) -> Vec<(ConnectionEventKind, EpId, u16)> {
        core::iter::from_fn(|| self.connection_event()).collect()
    }

    pub(crate) fn fail_attempt(&self, ep: EpId, failure: ConnectFailure) {
        self.raise(ControlEvent::ConnectFailed {
            queue_pair: ep.handle().to_raw(),
            failure,
        });
    }

    pub(crate) fn service_point(&self, psp: PspId) -> PspParam {
        self.ia.psp_query(psp, PspFields::all()).unwrap()
    }
}
