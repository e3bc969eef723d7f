//! Service points and connection requests.

mod two_peers;

use std::vec::Vec;

use crate::attributes::{IaAddress, ProviderAttributes};
use crate::backend::{BackendError, ConnectFailure, ControlEvent, PrivateData, RequestKey};
use crate::connection::{CrParam, PspParam, RspParam};
use crate::endpoint::EpParam;
use crate::error::{Cause, ErrorKind, Subtype};
use crate::event::{ConnectionEventKind, Event};
use crate::flags::{
    CrFields, EndpointState, EpCreator, EpFields, EvdFlags, PspFields, PspFlags, RspFields,
};
use crate::id::{CrId, EpId, EvdId, PspId, RspId};
use crate::testing::fixture::{Bench, PEER, QUALIFIER};
use crate::testing::{Call as Asked, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};

/// Returns the requests that the core rejected since the last call.
///
/// The flag is true if the consumer rejected the request.
fn rejections(bench: &Bench<'_>) -> Vec<(RequestKey, bool)> {
    let calls = bench.device.take_calls().into_iter();
    calls
        .filter_map(|call| match call {
            Asked::Reject {
                request,
                by_consumer,
                ..
            } => Some((request, by_consumer)),
            _ => None,
        })
        .collect()
}

fn listeners(bench: &Bench<'_>) -> usize {
    let [.., listeners] = bench.device.objects();
    listeners
}

/// Public service points are created, queried, refused and freed; a refusal leaves no trace.
///
/// Spec: PSC-01, PSC-04, PSC-05, PSA-01, PSQ-01, PSF-01, GEN-06, GEN-08
#[test]
fn public_service_points_come_and_go() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let consumer = PspFlags::Consumer;
    let refused = ia.psp_create(1, bench.data, consumer).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidHandleEvdCr);
    let refused = ia.psp_create(1, EvdId::NULL, consumer).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidHandleEvdCr);
    let cases = [
        (BackendError::Resources, ErrorKind::InsufficientResources),
        (BackendError::QualifierInUse, ErrorKind::ConnQualInUse),
        (BackendError::Address, ErrorKind::InvalidParameter),
    ];
    for (error, kind) in cases {
        bench.device.refuse_next(error);
        let refused = ia.psp_create(1, bench.requests, consumer).unwrap_err();
        assert_eq!(refused.kind(), kind);
    }
    bench.device.refuse_next(BackendError::QualifierUnavailable);
    let refused = ia.psp_create_any(bench.requests, consumer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnQualUnavailable);
    let psp = ia.psp_create(1, bench.requests, consumer).unwrap();
    assert_eq!(
        bench.service_point(psp),
        PspParam {
            ia: ia.handle(),
            qualifier: 1,
            evd: bench.requests,
            flags: consumer
        }
    );
    let (any, qualifier) = ia
        .psp_create_any(bench.requests, PspFlags::Provider)
        .unwrap();
    assert_eq!(bench.service_point(any).qualifier, qualifier);
    let mask = PspFields::from_bits_retain(0x10);
    assert_eq!(
        ia.psp_query(psp, mask).unwrap_err().subtype(),
        Subtype::InvalidArg2
    );
    // Public and reserved service points share one space of qualifiers.
    for taken in [1, qualifier] {
        let refused = ia.psp_create(taken, bench.requests, consumer).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnQualInUse);
        let refused = ia.rsp_create(taken, None, bench.requests).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnQualInUse);
    }
    bench.device.refuse_next(BackendError::Resources);
    let refused = ia.psp_create(3, bench.requests, consumer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    let in_use = ia.evd_free(bench.requests).unwrap_err();
    assert_eq!(in_use.subtype(), Subtype::InvalidStateEvdInUse);
    ia.psp_free(psp).unwrap();
    ia.psp_free(any).unwrap();
    for gone in [psp, PspId::NULL] {
        assert_eq!(
            ia.psp_free(gone).unwrap_err().subtype(),
            Subtype::InvalidHandlePsp
        );
        let error = ia.psp_query(gone, PspFields::all()).unwrap_err();
        assert_eq!(error.subtype(), Subtype::InvalidHandlePsp);
    }
    assert_eq!(listeners(&bench), 0);
    ia.evd_free(bench.requests).unwrap();
}

/// A reused slot has a new handle, and the old handle stays stale.
///
/// Spec: GEN-11, PSF-01, RSF-01, RSC-03, CRR-01
#[test]
fn handles_of_places_that_are_used_again_stay_stale() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let listen = || bench.listen(1);
    let psp = listen();
    let request = || {
        bench.ask(psp.handle());
        bench.request_event().unwrap()
    };
    let cr = request();
    ia.cr_reject(cr, &[]).unwrap();
    let next = request();
    assert_ne!(cr, next);
    let stale = ia.cr_query(cr, CrFields::all()).unwrap_err();
    assert_eq!(stale.cause(), Cause::Stale);
    ia.cr_reject(next, &[]).unwrap();
    ia.psp_free(psp).unwrap();
    let next = listen();
    assert_ne!(psp, next);
    let stale = ia.psp_query(psp, PspFields::all()).unwrap_err();
    assert_eq!(stale.cause(), Cause::Stale);
    ia.psp_free(next).unwrap();
    let reserve = || ia.rsp_create(1, None, bench.requests).unwrap();
    let freed = reserve();
    ia.rsp_free(freed).unwrap();
    let used = reserve();
    bench.ask(used.handle());
    bench.request_event().unwrap();
    let live = reserve();
    for rsp in [freed, used] {
        assert_ne!(rsp, live);
        let stale = ia.rsp_query(rsp, RspFields::all()).unwrap_err();
        assert_eq!(stale.cause(), Cause::Stale);
        assert!(ia.rsp_free(rsp).is_err());
    }
    ia.rsp_free(live).unwrap();
}

/// Two reserved service points have two slots.
///
/// Spec: RSC-01, RSQ-01
#[test]
fn reserved_service_points_do_not_share_a_place() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let (first_ep, first) = bench.reserved(1);
    let (second_ep, second) = bench.reserved(2);
    let point = |rsp| bench.ia.rsp_query(rsp, RspFields::all()).unwrap();
    for (rsp, qualifier, ep) in [(first, 1, first_ep), (second, 2, second_ep)] {
        assert_eq!(point(rsp).qualifier, qualifier);
        assert_eq!(point(rsp).ep, Some(ep));
    }
}

/// A provider that never or always makes endpoints refuses the other kind of service point.
///
/// Spec: IAQ-08, PSC-04, RSC-02
#[test]
fn provider_decides_which_service_points_make_endpoints() {
    for (ep_creator, good, bad) in [
        (EpCreator::Never, PspFlags::Consumer, PspFlags::Provider),
        (EpCreator::Always, PspFlags::Provider, PspFlags::Consumer),
    ] {
        let mut storage = TestStorage::new();
        let provider = ProviderAttributes {
            ep_creator,
            ..PROVIDER_ATTRIBUTES
        };
        let bench = Bench::with(&mut storage, IA_ATTRIBUTES, provider);
        let refused = bench.ia.psp_create(1, bench.requests, bad).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
        bench.ia.psp_create(1, bench.requests, good).unwrap();
        let bare = bench.ia.rsp_create(2, None, bench.requests);
        assert_eq!(bare.is_ok(), ep_creator == EpCreator::Always);
    }
}

/// A request becomes a connection request and an event; accepted, it leads to a connection.
///
/// Spec: PSC-01, CRQ-01, CRA-01, CRA-03, CRA-04, EPQ-02, EPQ-03
#[test]
fn a_request_is_accepted() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let psp = bench.listen(QUALIFIER);
    let request = bench.ask(psp.handle());
    let cr = match bench.ia.evd_dequeue(bench.requests) {
        Ok(Event::ConnectionRequest {
            service_point,
            qualifier,
            cr,
        }) => {
            assert_eq!((service_point, qualifier), (Some(psp), QUALIFIER));
            cr
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        bench.ia.cr_query(cr, CrFields::all()).unwrap(),
        CrParam {
            remote_address: Some(PEER),
            remote_port: 5,
            local_address: Some(IaAddress::Node(1)),
            qualifier: QUALIFIER,
            private_data: PrivateData::from_slice(b"please").unwrap(),
            local_ep: None,
        }
    );
    let mask = CrFields::from_bits_retain(0x20);
    let refused = bench.ia.cr_query(cr, mask).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg2);
    // The service point may be freed; the request stays valid.
    bench.ia.psp_free(psp).unwrap();
    let ep = bench.endpoint();
    bench.device.take_calls();
    bench.ia.cr_accept(cr, Some(ep), b"welcome").unwrap();
    assert_eq!(
        bench.device.take_calls(),
        [Asked::Accept {
            request,
            key: bench.pair(ep),
            private_data: b"welcome".to_vec()
        }]
    );
    let gone = bench.ia.cr_query(cr, CrFields::all()).unwrap_err();
    assert_eq!(gone.subtype(), Subtype::InvalidHandleCr);
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.state, EndpointState::CompletionPending);
    assert_eq!(param.remote_address, Some(PEER));
    assert_eq!(param.remote_port, Some(5));
    assert_eq!(param.local_port, Some(QUALIFIER));
    bench.raise(ControlEvent::Established {
        queue_pair: ep.handle().to_raw(),
        private_data: PrivateData::new(),
    });
    let up = (ConnectionEventKind::Established, ep, 0);
    assert_eq!(bench.connection_events(), [up]);
    assert_eq!(bench.state(ep), EndpointState::Connected);
}

/// A failure after the accept raises ACCEPT_COMPLETION_ERROR, for each event of the device.
///
/// Spec: CRA-03, PSF-01
#[test]
fn an_accept_can_fail_later() {
    let failures: [fn(u64) -> ControlEvent; 3] = [
        |queue_pair| ControlEvent::ConnectFailed {
            queue_pair,
            failure: ConnectFailure::TimedOut,
        },
        |queue_pair| ControlEvent::Disconnected { queue_pair },
        |queue_pair| ControlEvent::Broken { queue_pair },
    ];
    for failure in failures {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(EndpointState::CompletionPending);
        bench.raise(failure(ep.handle().to_raw()));
        let failed = (ConnectionEventKind::AcceptCompletionError, ep, 0);
        assert_eq!(bench.connection_events(), [failed]);
        assert_eq!(bench.state(ep), EndpointState::Disconnected);
    }
}

/// A refused accept leaves endpoint, request and peer unchanged.
///
/// Spec: CRA-01, CRA-02, CRA-05, GEN-06, GEN-10
#[test]
fn a_refused_accept_changes_nothing() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let psp = bench.listen(QUALIFIER);
    bench.ask(psp.handle());
    let cr = bench.request_event().unwrap();
    let ep = bench.endpoint();
    let bare = ia.ep_create(None, None, None, None, None).unwrap();
    let busy = bench.connected();
    bench.device.take_calls();
    let subtype = |cr, ep, data: &[u8]| ia.cr_accept(cr, ep, data).unwrap_err().subtype();
    assert_eq!(subtype(CrId::NULL, Some(ep), &[]), Subtype::InvalidHandleCr);
    assert_eq!(subtype(cr, None, &[]), Subtype::InvalidHandleEp);
    assert_eq!(subtype(cr, Some(EpId::NULL), &[]), Subtype::InvalidHandleEp);
    assert_eq!(
        subtype(cr, Some(busy), &[]),
        Subtype::InvalidStateEpConnected
    );
    assert_eq!(
        subtype(cr, Some(bare), &[]),
        Subtype::InvalidStateEpNotReady
    );
    assert_eq!(subtype(cr, Some(ep), &[0; 65]), Subtype::InvalidArg3);
    bench.device.refuse_next(BackendError::Resources);
    let refused = ia.cr_accept(cr, Some(ep), &[]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    assert_eq!(bench.device.take_calls(), []);
    assert_eq!(bench.state(ep), EndpointState::Unconnected);
    ia.cr_accept(cr, Some(ep), &[1; 64]).unwrap();
    // A request with its own endpoint accepts no other.
    let (_, own) = bench.in_state_at(8, EndpointState::PassiveConnectionPending);
    let spare = bench.endpoint();
    assert_eq!(
        subtype(own.unwrap(), Some(spare), &[]),
        Subtype::InvalidArg2
    );
    assert_eq!(
        subtype(own.unwrap(), Some(EpId::NULL), &[]),
        Subtype::InvalidHandleEp
    );
    ia.cr_accept(own.unwrap(), None, &[]).unwrap();
}

/// A reject carries the consumer's private data; endpoints return to their owners.
///
/// Spec: CRR-01, CRR-02, RSC-04, GEN-10
#[test]
fn rejects_give_endpoints_back() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let (reserved, cr) = bench.in_state(EndpointState::PassiveConnectionPending);
    let cr = cr.unwrap();
    let refused = bench.ia.cr_reject(cr, &[0; 65]).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg2);
    bench.device.take_calls();
    bench.ia.cr_reject(cr, b"sorry").unwrap();
    assert!(matches!(
        bench.device.take_calls().as_slice(),
        [Asked::Reject { by_consumer: true, private_data, .. }] if private_data == b"sorry"
    ));
    assert_eq!(bench.state(reserved), EndpointState::Unconnected);
    let (lent, cr) = bench.in_state(EndpointState::TentativeConnectionPending);
    bench.ia.cr_reject(cr.unwrap(), &[]).unwrap();
    let dead = bench.ia.ep_query(lent, EpFields::all()).unwrap_err();
    assert_eq!(dead.subtype(), Subtype::InvalidHandleEp);
    let gone = bench.ia.cr_reject(cr.unwrap(), &[]).unwrap_err();
    assert_eq!(gone.subtype(), Subtype::InvalidHandleCr);
    // The reserved endpoint is usable again.
    bench.connect(reserved);
}

/// A request counts as proven where the backend does not tell; one that is over is refused.
///
/// Spec: GEN-11
#[test]
fn a_request_is_proven_unless_the_backend_says_otherwise() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let psp = bench.listen(1);
    bench.ask(psp.handle());
    let cr = bench.request_event().unwrap();
    assert_eq!(bench.ia.cr_is_proven(cr), Ok(true));
    bench.ia.cr_reject(cr, &[]).unwrap();
    let gone = bench.ia.cr_is_proven(cr).unwrap_err();
    assert_eq!(gone.cause(), Cause::Stale);
}

/// The queue of the dispatcher is the backlog.
///
/// A request that does not fit is refused as without a listener, and is no overflow.
///
/// Spec: PSC-02, EPK-08
#[test]
fn the_backlog_is_the_event_queue() {
    for flags in [PspFlags::Consumer, PspFlags::Provider] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let psp = bench
            .ia
            .psp_create(QUALIFIER, bench.requests, flags)
            .unwrap();
        bench.ask(psp.handle());
        bench.ask(psp.handle());
        assert_eq!(rejections(&bench), []);
        let third = bench.ask(psp.handle());
        assert_eq!(rejections(&bench), [(third, false)]);
        assert!(bench.ia.evd_dequeue(bench.ia.async_evd()).is_err());
        let first = bench.request_event().unwrap();
        bench.ask(psp.handle());
        assert_eq!(rejections(&bench), []);
        bench.ia.cr_reject(first, &[]).unwrap();
        // Requests for a stale service point, or for another object, are refused too.
        bench.ia.psp_free(psp).unwrap();
        bench.device.take_calls();
        let late = bench.ask(psp.handle());
        let stray = bench.ask(bench.pz.handle());
        assert_eq!(rejections(&bench), [(late, false), (stray, false)]);
    }
}

/// Requests beyond the storage are refused and leave no trace.
///
/// Spec: PSC-02
#[test]
fn requests_beyond_the_storage_are_refused() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let psp = bench
        .ia
        .psp_create(QUALIFIER, bench.requests, PspFlags::Provider)
        .unwrap();
    let mut requests = Vec::new();
    for _ in 0..8 {
        bench.ask(psp.handle());
        requests.push(bench.request_event().unwrap());
    }
    bench.device.take_calls();
    let ninth = bench.ask(psp.handle());
    assert_eq!(rejections(&bench), [(ninth, false)]);
    assert_eq!(bench.request_event(), None);
    for cr in requests {
        bench.ia.cr_reject(cr, &[]).unwrap();
    }
    let eight: Vec<_> = (0..8).map(|_| bench.endpoint()).collect();
    assert_eq!(eight.len(), 8);
    bench.device.take_calls();
    // No free endpoint is left.
    let refused = bench.ask(psp.handle());
    assert_eq!(rejections(&bench), [(refused, false)]);
}

/// An endpoint made by the provider gets zone and dispatchers, and is then accepted.
///
/// Spec: PSC-03, CRA-01, EPM-02, EPM-03
#[test]
fn a_lent_endpoint_is_set_up_and_accepted() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let (ep, cr) = bench.in_state(EndpointState::TentativeConnectionPending);
    let cr = cr.unwrap();
    let mut param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.state, EndpointState::TentativeConnectionPending);
    assert_eq!((param.pz, param.recv_evd), (None, None));
    assert_eq!((param.request_evd, param.connect_evd), (None, None));
    assert_eq!(
        (param.remote_address, param.remote_port),
        (Some(PEER), Some(5))
    );
    let early = bench.ia.cr_accept(cr, None, &[]).unwrap_err();
    assert_eq!(early.subtype(), Subtype::InvalidStateEpNotReady);
    let busy = bench.ia.ep_free(ep).unwrap_err();
    assert_eq!(busy.subtype(), Subtype::InvalidStateEpTentConnPending);
    param = EpParam {
        pz: Some(bench.pz),
        recv_evd: Some(bench.data),
        request_evd: Some(bench.data),
        connect_evd: Some(bench.connections),
        ..param
    };
    let fields = EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
    bench.ia.ep_modify(ep, fields, &param).unwrap();
    bench.receive(ep, 1);
    bench.ia.cr_accept(cr, None, &[]).unwrap();
    bench.establish(ep);
    assert_eq!(bench.state(ep), EndpointState::Connected);
    assert_eq!(bench.connection_events().len(), 1);
    bench.send(ep, 2);
    bench.ia.ep_free(ep).unwrap();
}

/// A reserved service point yields one request for one endpoint, then ends.
///
/// Spec: RSC-01..05, RSQ-01, RSF-01, GEN-15
#[test]
fn a_reserved_service_point_yields_one_request() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let (ep, rsp) = bench.reserved(QUALIFIER);
    assert_eq!(
        ia.rsp_query(rsp, RspFields::all()),
        Ok(RspParam {
            ia: ia.handle(),
            qualifier: QUALIFIER,
            evd: bench.requests,
            ep: Some(ep)
        })
    );
    let mask = RspFields::from_bits_retain(0x10);
    assert_eq!(
        ia.rsp_query(rsp, mask).unwrap_err().subtype(),
        Subtype::InvalidArg2
    );
    assert_eq!(bench.state(ep), EndpointState::Reserved);
    let reserved = ia.ep_free(ep).unwrap_err();
    assert_eq!(reserved.subtype(), Subtype::InvalidStateEpReserved);
    let again = ia.rsp_create(9, Some(ep), bench.requests).unwrap_err();
    assert_eq!(again.subtype(), Subtype::InvalidStateEpReserved);
    ia.rsp_free(rsp).unwrap();
    assert_eq!(bench.state(ep), EndpointState::Unconnected);
    assert_eq!(
        ia.rsp_free(rsp).unwrap_err().subtype(),
        Subtype::InvalidHandleRsp
    );
    assert_eq!(
        ia.rsp_free(RspId::NULL).unwrap_err().subtype(),
        Subtype::InvalidHandleRsp
    );
    bench.device.refuse_next(BackendError::Resources);
    assert!(ia.rsp_create(QUALIFIER, Some(ep), bench.requests).is_err());
    assert_eq!(bench.state(ep), EndpointState::Unconnected);
    let rsp = ia.rsp_create(QUALIFIER, Some(ep), bench.requests).unwrap();
    bench.ask(rsp.handle());
    assert!(matches!(
        ia.evd_dequeue(bench.requests),
        Ok(Event::ConnectionRequest {
            service_point: None,
            qualifier: QUALIFIER,
            ..
        })
    ));
    assert_eq!(bench.state(ep), EndpointState::PassiveConnectionPending);
    let gone = ia.rsp_query(rsp, RspFields::all()).unwrap_err();
    assert_eq!(gone.subtype(), Subtype::InvalidHandleRsp);
    assert_eq!(listeners(&bench), 0);
    // No stream feeds the dispatcher.
    ia.evd_free(bench.requests).unwrap();
}

/// For a reserved service point without an endpoint the provider makes one.
///
/// Spec: RSC-02, PSC-03
#[test]
fn a_reserved_service_point_may_have_no_endpoint() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let rsp = bench
        .ia
        .rsp_create(QUALIFIER, None, bench.requests)
        .unwrap();
    bench.ask(rsp.handle());
    let cr = bench.request_event().unwrap();
    let ep = bench.ia.cr_query(cr, CrFields::all()).unwrap().local_ep;
    assert_eq!(
        bench.state(ep.unwrap()),
        EndpointState::TentativeConnectionPending
    );
}

/// A full queue refuses the request of a reserved service point, which keeps listening.
///
/// Spec: PSC-02, RSC-03
#[test]
fn a_refused_request_does_not_use_up_the_service_point() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let psp = bench.listen(1);
    bench.ask(psp.handle());
    bench.ask(psp.handle());
    let (ep, rsp) = bench.reserved(QUALIFIER);
    bench.device.take_calls();
    let request = bench.ask(rsp.handle());
    assert_eq!(rejections(&bench), [(request, false)]);
    assert_eq!(bench.state(ep), EndpointState::Reserved);
    bench.request_event();
    bench.ask(rsp.handle());
    assert_eq!(bench.state(ep), EndpointState::PassiveConnectionPending);
}

/// A handoff creates a new handle at the other service point, and releases the endpoint.
///
/// Spec: CRH-01, CRR-02, RSC-03, PSC-03
#[test]
fn a_request_is_handed_off() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let there = ia.evd_create(1, None, EvdFlags::CR).unwrap();
    let target = ia.psp_create(8, there, PspFlags::Consumer).unwrap();
    let (reserved, cr) = bench.in_state(EndpointState::PassiveConnectionPending);
    let cr = cr.unwrap();
    let refused = ia.cr_handoff(cr, 999).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg2);
    assert_eq!(
        ia.cr_handoff(CrId::NULL, 8).unwrap_err().subtype(),
        Subtype::InvalidHandleCr
    );
    bench.device.take_calls();
    ia.cr_handoff(cr, 8).unwrap();
    assert_eq!(bench.state(reserved), EndpointState::Unconnected);
    let gone = ia.cr_query(cr, CrFields::all()).unwrap_err();
    assert_eq!(gone.cause(), Cause::Stale);
    let moved = match ia.evd_dequeue(there) {
        Ok(Event::ConnectionRequest {
            service_point: Some(psp),
            qualifier: 8,
            cr,
        }) if psp == target => cr,
        other => panic!("{other:?}"),
    };
    let param = ia.cr_query(moved, CrFields::all()).unwrap();
    assert_eq!(param.private_data.as_slice(), b"please");
    assert_eq!((param.local_ep, param.remote_port), (None, 5));
    // Handed off to a reserved service point: then only its endpoint can accept.
    let (ep, _) = bench.reserved(9);
    ia.cr_handoff(moved, 9).unwrap();
    let cr = bench.request_event().unwrap();
    assert_eq!(bench.state(ep), EndpointState::PassiveConnectionPending);
    assert_eq!(ia.cr_query(cr, CrFields::all()).unwrap().local_ep, Some(ep));
    // The handoffs are invisible to the peer.
    assert_eq!(rejections(&bench), []);
    ia.cr_accept(cr, None, &[]).unwrap();
}

/// A handoff without room leaves the request and its endpoint unchanged.
///
/// Spec: CRH-01, GEN-06
#[test]
fn a_handoff_needs_room() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let there = bench.ia.evd_create(1, None, EvdFlags::CR).unwrap();
    let target = bench.ia.psp_create(8, there, PspFlags::Provider).unwrap();
    bench.ask(target.handle());
    let (lent, cr) = bench.in_state(EndpointState::TentativeConnectionPending);
    let cr = cr.unwrap();
    let full = bench.ia.cr_handoff(cr, 8).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::InsufficientResources);
    assert_eq!(bench.state(lent), EndpointState::TentativeConnectionPending);
    assert!(bench.ia.cr_query(cr, CrFields::all()).is_ok());
    bench.ia.evd_dequeue(there).unwrap();
    bench.ia.cr_handoff(cr, 8).unwrap();
    let dead = bench.ia.ep_query(lent, EpFields::all()).unwrap_err();
    assert_eq!(dead.subtype(), Subtype::InvalidHandleEp);
    // One for the first request, one for the moved one; the slot of the old one is free.
    let six: Vec<_> = (0..6).map(|_| bench.endpoint()).collect();
    assert_eq!(six.len(), 6);
}

/// A service point is refused on a dispatcher whose completions are not by threshold.
///
/// Spec: EPC-05, PSC-04
#[test]
fn a_service_point_respects_what_feeds_its_dispatcher() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let evd = bench
        .ia
        .evd_create(4, None, EvdFlags::DTO | EvdFlags::CR)
        .unwrap();
    let quiet = crate::attributes::EpAttributes {
        request_completion_flags: crate::flags::CompletionFlags::UNSIGNALLED,
        max_recv_dtos: 0,
        ..crate::testing::fixture::SMALL
    };
    let ep = bench
        .ia
        .ep_create(Some(bench.pz), None, Some(evd), None, Some(&quiet))
        .unwrap();
    let refused = bench.ia.psp_create(1, evd, PspFlags::Consumer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParameter);
    assert_eq!(listeners(&bench), 0);
    bench.ia.ep_free(ep).unwrap();
    bench.ia.psp_create(1, evd, PspFlags::Consumer).unwrap();
}
