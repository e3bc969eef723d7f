//! Creating and modifying endpoints.

use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::BackendError;
use crate::endpoint::EpParam;
use crate::error::{Cause, Error, ErrorKind, Subtype};
use crate::event::Event;
use crate::flags::{
    CompletionFlags, DtoStatus, EndpointState, EpFields, EvdFlags, PzFields, QualityOfService,
    WATERMARK_INFINITE,
};
use crate::id::{EpId, EvdId, PzId, SrqId};
use crate::testing::fixture::{Bench, QUALIFIER, SMALL};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};

pub(super) fn make(bench: &Bench<'_>, attributes: &EpAttributes) -> Result<EpId, Error> {
    bench.ia.ep_create(
        Some(bench.pz),
        Some(bench.data),
        Some(bench.data),
        Some(bench.connections),
        Some(attributes),
    )
}

/// Asserts that no queue pair is left and that dispatchers and zone can be freed.
fn nothing_left(bench: &Bench<'_>) {
    let [.., pairs, _, _] = bench.device.objects();
    assert_eq!(pairs, 0);
    bench.ia.evd_free(bench.data).unwrap();
    bench.ia.evd_free(bench.connections).unwrap();
    bench.ia.pz_free(bench.pz).unwrap();
}

/// A new endpoint is unconnected and has the requested parameters and a queue pair.
///
/// Spec: EPC-01, EPC-02, EPQ-01..03, EPG-01, DTO-01
#[test]
fn a_new_endpoint_has_what_was_asked_for() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = make(&bench, &SMALL).unwrap();
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(
        param,
        EpParam {
            ia: bench.ia.handle(),
            state: EndpointState::Unconnected,
            local_address: IA_ATTRIBUTES.ia_address,
            local_port: None,
            remote_address: None,
            remote_port: None,
            pz: Some(bench.pz),
            recv_evd: Some(bench.data),
            request_evd: Some(bench.data),
            connect_evd: Some(bench.connections),
            srq: None,
            attributes: SMALL,
        }
    );
    let pair = bench.pair(ep);
    assert_eq!(bench.device.pair_attributes(pair), Some(SMALL));
    let status = bench.ia.ep_get_status(ep).unwrap();
    assert!(status.recv_idle && status.request_idle);
    bench.receive(ep, 1);
    assert!(!bench.ia.ep_get_status(ep).unwrap().recv_idle);
    bench
        .device
        .complete_receive(pair, DtoStatus::Success, 0, false);
    // Complete, although the event is not dequeued.
    assert!(bench.ia.ep_get_status(ep).unwrap().recv_idle);
}

/// Without attributes, the adapter's defaults apply; queues without a dispatcher accept no posts.
///
/// Spec: EPC-02, EPC-03, EPC-09, DTO-02
#[test]
fn a_bare_endpoint_waits_for_the_rest() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.ia.ep_create(None, None, None, None, None).unwrap();
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.attributes, EpAttributes::default_for(&IA_ATTRIBUTES));
    assert_eq!(
        (param.pz, param.recv_evd, param.connect_evd),
        (None, None, None)
    );
    let not_ready = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert_eq!(error.subtype(), Subtype::InvalidStateEpNotReady);
    };
    let none = CompletionFlags::empty();
    not_ready(bench.ia.post_recv(ep, &[], 0, none).unwrap_err());
    not_ready(
        bench
            .ia
            .ep_connect(ep, &bench.param(), crate::time::Instant::ZERO)
            .unwrap_err(),
    );
    let wanted = EpParam {
        pz: Some(bench.pz),
        ..param
    };
    bench.ia.ep_modify(ep, EpFields::PZ, &wanted).unwrap();
    let pair = bench.pair(ep);
    let made = bench.device.pair_attributes(pair).unwrap();
    assert_eq!((made.max_recv_dtos, made.max_request_dtos), (0, 0));
    let refused = bench.ia.post_recv(ep, &[], 0, none).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    let wanted = EpParam {
        recv_evd: Some(bench.data),
        ..param
    };
    bench.ia.ep_modify(ep, EpFields::RECV_EVD, &wanted).unwrap();
    bench.receive(ep, 1);
    bench.connect(ep);
}

/// Every attribute is checked: sign, adapter limit, flags, quality.
///
/// Spec: EPC-07, EPC-08, EPM-04, EPX-09, GEN-06, GEN-07
#[test]
fn attributes_are_checked_one_by_one() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let parameter = ErrorKind::InvalidParameter;
    let model = ErrorKind::ModelNotSupported;
    let adapter = IA_ATTRIBUTES;
    type Case = (fn(&mut EpAttributes), ErrorKind, Cause);
    let cases: &[Case] = &[
        (|a| a.max_recv_dtos = -1, parameter, Cause::MaxRecvDtos),
        (
            |a| a.max_request_dtos = -1,
            parameter,
            Cause::MaxRequestDtos,
        ),
        (|a| a.max_recv_iov = -1, parameter, Cause::MaxRecvIov),
        (|a| a.max_request_iov = -1, parameter, Cause::MaxRequestIov),
        (|a| a.max_rdma_read_in = -1, parameter, Cause::MaxRdmaReadIn),
        (
            |a| a.max_rdma_read_out = -1,
            parameter,
            Cause::MaxRdmaReadOut,
        ),
        (
            |a| a.max_rdma_read_iov = -1,
            parameter,
            Cause::MaxRdmaReadIov,
        ),
        (
            |a| a.max_rdma_write_iov = -1,
            parameter,
            Cause::MaxRdmaWriteIov,
        ),
        (|a| a.srq_soft_hw = -2, parameter, Cause::SrqSoftHw),
        (|a| a.max_recv_dtos = 65, parameter, Cause::MaxRecvDtos),
        (
            |a| a.max_request_dtos = 65,
            parameter,
            Cause::MaxRequestDtos,
        ),
        (|a| a.max_recv_iov = 5, parameter, Cause::MaxRecvIov),
        (|a| a.max_request_iov = 5, parameter, Cause::MaxRequestIov),
        (|a| a.max_rdma_read_in = 5, parameter, Cause::MaxRdmaReadIn),
        (
            |a| a.max_rdma_read_out = 5,
            parameter,
            Cause::MaxRdmaReadOut,
        ),
        (
            |a| a.max_rdma_read_iov = 5,
            parameter,
            Cause::MaxRdmaReadIov,
        ),
        (
            |a| a.max_rdma_write_iov = 5,
            parameter,
            Cause::MaxRdmaWriteIov,
        ),
        (
            |a| a.max_message_size = (1 << 30) + 1,
            parameter,
            Cause::MaxMessageSize,
        ),
        (
            |a| a.max_rdma_size = u64::MAX,
            parameter,
            Cause::MaxRdmaSize,
        ),
        (
            |a| a.recv_completion_flags = CompletionFlags::SUPPRESS,
            parameter,
            Cause::RecvCompletionFlags,
        ),
        (
            |a| a.request_completion_flags = CompletionFlags::SOLICITED_WAIT,
            parameter,
            Cause::RequestCompletionFlags,
        ),
        (
            |a| a.request_completion_flags = CompletionFlags::from_bits_retain(0x24),
            parameter,
            Cause::RequestCompletionFlags,
        ),
        (
            |a| a.qos = QualityOfService::LOW_LATENCY | QualityOfService::ECONOMY,
            parameter,
            Cause::FlagCombination,
        ),
        (
            |a| a.qos = QualityOfService::from_bits_retain(0x100),
            parameter,
            Cause::UnknownFlags,
        ),
        (
            |a| a.qos = QualityOfService::PREMIUM,
            model,
            Cause::Unsupported,
        ),
    ];
    assert_eq!(
        (adapter.max_dto_per_ep, adapter.max_rdma_read_per_ep_in),
        (64, 4)
    );
    let spare = bench.endpoint();
    let before = bench.ia.ep_query(spare, EpFields::all()).unwrap();
    for (number, (change, kind, cause)) in cases.iter().enumerate() {
        let mut attributes = SMALL;
        change(&mut attributes);
        let error = make(&bench, &attributes).unwrap_err();
        assert_eq!(
            (error.kind(), error.cause()),
            (*kind, *cause),
            "case {number}"
        );
        let wanted = EpParam {
            attributes,
            ..before
        };
        let error = bench
            .ia
            .ep_modify(spare, EpFields::ATTRIBUTES, &wanted)
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.cause()),
            (*kind, *cause),
            "case {number}"
        );
        if *kind == parameter {
            assert_eq!(
                make(&bench, &attributes).unwrap_err().subtype(),
                Subtype::InvalidArg6
            );
            assert_eq!(error.subtype(), Subtype::InvalidArg3);
        }
        assert_eq!(bench.ia.ep_query(spare, EpFields::all()), Ok(before));
    }
    bench.ia.ep_free(spare).unwrap();
    nothing_left(&bench);
}

/// Bad handles are reported by kind and role, before any other error.
///
/// Spec: EPC-08, GEN-03, GEN-06, EVC-05
#[test]
fn handles_are_checked_first() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let negative = EpAttributes {
        max_recv_dtos: -1,
        ..SMALL
    };
    let (pz, data) = (Some(bench.pz), Some(bench.data));
    let null = Some(EvdId::NULL);
    let subtype = |pz, receive, request, connect, attributes| {
        bench
            .ia
            .ep_create(pz, receive, request, connect, Some(attributes))
            .unwrap_err()
            .subtype()
    };
    let ask = |pz, receive, request, connect| subtype(pz, receive, request, connect, &negative);
    assert_eq!(
        ask(Some(PzId::NULL), data, data, data),
        Subtype::InvalidHandlePz
    );
    assert_eq!(ask(pz, null, data, data), Subtype::InvalidHandleEvdRecv);
    assert_eq!(ask(pz, data, null, data), Subtype::InvalidHandleEvdRequest);
    assert_eq!(ask(pz, data, data, null), Subtype::InvalidHandleEvdConn);
    // A dispatcher accepts only the streams that it was created for.
    let other = Some(bench.connections);
    assert_eq!(
        subtype(pz, other, data, None, &SMALL),
        Subtype::InvalidHandleEvdRecv
    );
    assert_eq!(
        subtype(pz, data, other, None, &SMALL),
        Subtype::InvalidHandleEvdRequest
    );
    assert_eq!(
        subtype(pz, data, data, data, &SMALL),
        Subtype::InvalidHandleEvdConn
    );
    // A dispatcher without the stream is reported before attributes that need a missing dispatcher.
    for (receive, request, connect, role) in [
        (None, other, None, Subtype::InvalidHandleEvdRequest),
        (other, None, None, Subtype::InvalidHandleEvdRecv),
        (None, data, data, Subtype::InvalidHandleEvdConn),
    ] {
        assert_eq!(subtype(pz, receive, request, connect, &SMALL), role);
        assert_eq!(ask(pz, receive, request, connect), role);
    }
    let missing = bench
        .ia
        .ep_create(pz, None, data, None, Some(&SMALL))
        .unwrap_err();
    assert_eq!(missing.cause(), Cause::DispatcherMissing);
    let missing = bench
        .ia
        .ep_create(pz, data, None, None, Some(&SMALL))
        .unwrap_err();
    assert_eq!(missing.subtype(), Subtype::InvalidArg6);
    nothing_left(&bench);
}

/// Streams that may not share a dispatcher are refused without a trace.
///
/// Spec: EPC-04..07, GEN-06
#[test]
fn streams_that_do_not_go_together_are_refused() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let quiet = EpAttributes {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        request_completion_flags: CompletionFlags::UNSIGNALLED,
        ..SMALL
    };
    let mixed = EpAttributes {
        request_completion_flags: CompletionFlags::EVD_THRESHOLD,
        ..quiet
    };
    let refused = make(&bench, &mixed).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParameter);
    assert_eq!(refused.cause(), Cause::FlagCombination);
    let ep = make(&bench, &quiet).unwrap();
    // The first stream fixes the dispatcher's configuration.
    let refused = make(&bench, &SMALL).unwrap_err();
    assert_eq!(refused.cause(), Cause::FlagCombination);
    // Both streams change together, or none does.
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let wanted = EpParam {
        attributes: SMALL,
        ..before
    };
    let one = EpFields::RECV_COMPLETION_FLAGS;
    let both = one | EpFields::REQUEST_COMPLETION_FLAGS;
    let refused = bench.ia.ep_modify(ep, one, &wanted).unwrap_err();
    assert_eq!(refused.cause(), Cause::FlagCombination);
    assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
    bench.ia.ep_modify(ep, both, &wanted).unwrap();
    let second = make(&bench, &SMALL).unwrap();
    for ep in [ep, second] {
        bench.ia.ep_free(ep).unwrap();
    }
    nothing_left(&bench);
}

/// A creation that runs out of storage or device resources releases everything it took.
///
/// Spec: EPC-08, GEN-06
#[test]
fn a_failed_creation_gives_everything_back() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let cases = [
        (BackendError::Resources, ErrorKind::InsufficientResources),
        (BackendError::NotSupported, ErrorKind::ModelNotSupported),
        (BackendError::Device, ErrorKind::InternalError),
    ];
    for (error, kind) in cases {
        bench.device.refuse_next(error);
        assert_eq!(make(&bench, &SMALL).unwrap_err().kind(), kind);
    }
    // Of 256 records, two endpoints with two queues of 64 take all.
    let large = EpAttributes {
        max_recv_dtos: 64,
        max_request_dtos: 64,
        ..SMALL
    };
    let first = make(&bench, &large).unwrap();
    let second = make(&bench, &large).unwrap();
    let refused = make(&bench, &SMALL).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    assert_eq!(refused.cause(), Cause::RecordsExhausted);
    bench.ia.ep_free(first).unwrap();
    let third = make(&bench, &large).unwrap();
    assert_ne!(third, first);
    bench.ia.ep_free(second).unwrap();
    bench.ia.ep_free(third).unwrap();
    // Slots are reused, handles are not.
    let eight: std::vec::Vec<_> = (0..8).map(|_| make(&bench, &SMALL).unwrap()).collect();
    assert_eq!(make(&bench, &SMALL).unwrap_err().cause(), Cause::TableFull);
    for ep in eight {
        bench.ia.ep_free(ep).unwrap();
    }
    nothing_left(&bench);
}

/// Posted receives survive every change, with their cookies and their order.
///
/// Spec: EPM-02, EPM-03, EPM-07
#[test]
fn posted_receives_survive_a_change() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    bench.receive(ep, 1);
    bench.receive(ep, 2);
    let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    wanted.attributes.max_recv_dtos = 6;
    wanted.attributes.max_request_dtos = 9;
    let counts = EpFields::MAX_RECV_DTOS | EpFields::MAX_REQUEST_DTOS;
    bench.ia.ep_modify(ep, counts, &wanted).unwrap();
    for cookie in 3..=6 {
        bench.receive(ep, cookie);
    }
    let full = bench
        .ia
        .post_recv(ep, &[], 7, CompletionFlags::empty())
        .unwrap_err();
    assert_eq!(full.kind(), ErrorKind::InsufficientResources);
    // Down to depth 0, and up again.
    wanted.recv_evd = None;
    bench.ia.ep_modify(ep, EpFields::RECV_EVD, &wanted).unwrap();
    wanted.recv_evd = Some(bench.data);
    bench.ia.ep_modify(ep, EpFields::RECV_EVD, &wanted).unwrap();
    bench.connect(ep);
    bench.establish(ep);
    let pair = bench.pair(ep);
    for cookie in 1..=6 {
        bench
            .device
            .complete_receive(pair, DtoStatus::Success, 0, false);
        match bench.ia.evd_dequeue(bench.data) {
            Ok(Event::Dto(completion)) => {
                assert_eq!((completion.ep, completion.cookie), (ep, cookie));
            }
            other => panic!("{other:?}"),
        }
    }
    for cookie in 1..=9 {
        bench.send(ep, cookie);
    }
    bench.ia.ep_free(ep).unwrap();
    // All records are free: two endpoints that need all of them fit.
    let large = EpAttributes {
        max_recv_dtos: 64,
        max_request_dtos: 64,
        ..SMALL
    };
    let both = [make(&bench, &large).unwrap(), make(&bench, &large).unwrap()];
    for ep in both {
        bench.ia.ep_free(ep).unwrap();
    }
    nothing_left(&bench);
}

/// Flushed completions that are not dequeued survive a change of the queue's depth.
///
/// A device may flush receives before the connection. Their records are not reused until then.
///
/// Spec: EPM-03, EPM-07
#[test]
fn flushed_receives_survive_a_change() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    bench.receive(ep, 1);
    bench.receive(ep, 2);
    let pair = bench.pair(ep);
    for _ in 0..2 {
        bench
            .device
            .complete_receive(pair, DtoStatus::Flushed, 0, false);
    }
    assert!(bench.ia.ep_get_status(ep).unwrap().recv_idle);
    let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    wanted.attributes.max_recv_dtos = 6;
    bench
        .ia
        .ep_modify(ep, EpFields::MAX_RECV_DTOS, &wanted)
        .unwrap();
    for cookie in 3..=8 {
        bench.receive(ep, cookie);
    }
    for _ in 3..=8 {
        bench
            .device
            .complete_receive(pair, DtoStatus::Success, 0, false);
    }
    for cookie in 1..=8 {
        match bench.ia.evd_dequeue(bench.data) {
            Ok(Event::Dto(completion)) => {
                assert_eq!((completion.ep, completion.cookie), (ep, cookie));
                let flushed = completion.status == DtoStatus::Flushed;
                assert_eq!(flushed, cookie <= 2);
            }
            other => panic!("{cookie}: {other:?}"),
        }
    }
    assert!(bench.ia.evd_dequeue(bench.data).is_err());
}

/// A failed change changes nothing, at whatever step it fails.
///
/// Spec: EPM-07, GEN-06
#[test]
fn a_failed_change_changes_nothing() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    bench.receive(ep, 1);
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let zone = bench.ia.pz_create().unwrap();
    let other = bench.ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let connect = bench.ia.evd_create(4, None, EvdFlags::CONNECTION).unwrap();
    let wanted = EpParam {
        pz: Some(zone),
        recv_evd: Some(other),
        request_evd: Some(other),
        connect_evd: Some(connect),
        attributes: EpAttributes {
            max_recv_dtos: 10,
            max_request_dtos: 11,
            max_message_size: 5,
            ..SMALL
        },
        ..before
    };
    let fields = EpFields::ATTRIBUTES
        | EpFields::PZ
        | EpFields::RECV_EVD
        | EpFields::REQUEST_EVD
        | EpFields::CONNECT_EVD;
    let settings = fields.difference(EpFields::from_bits_retain(0x7800_0000));
    for (error, kind) in [
        (BackendError::Resources, ErrorKind::InsufficientResources),
        (BackendError::State, ErrorKind::InvalidState),
    ] {
        bench.device.refuse_next(BackendError::Resources);
        assert!(bench.ia.ep_modify(ep, settings, &wanted).is_err());
        // Depending on the order, the first refusal hit the completion queue or the queue pair.
        bench.device.refuse_next(error);
        let grown = EpParam {
            attributes: EpAttributes {
                max_recv_dtos: 2,
                max_request_dtos: 2,
                ..SMALL
            },
            ..wanted
        };
        let refused = bench.ia.ep_modify(ep, settings, &grown).unwrap_err();
        assert_eq!(refused.kind(), kind);
        assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
    }
    let refused = bench
        .ia
        .ep_modify(ep, EpFields::PZ, &EpParam { pz: None, ..before })
        .unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidHandlePz);
    // Nothing references the new objects.
    bench.ia.pz_free(zone).unwrap();
    bench.ia.evd_free(other).unwrap();
    bench.ia.evd_free(connect).unwrap();
    // The receive is still posted.
    bench.connect(ep);
    bench.establish(ep);
    let pair = bench.pair(ep);
    assert!(
        bench
            .device
            .complete_receive(pair, DtoStatus::Success, 0, false)
    );
    assert!(matches!(
        bench.ia.evd_dequeue(bench.data),
        Ok(Event::Dto(completion)) if completion.cookie == 1
    ));
    bench.ia.ep_free(ep).unwrap();
    nothing_left(&bench);
}

/// A successful change applies to the queue pair, the dispatchers and posts.
///
/// Spec: EPM-01..04, DTO-05
#[test]
fn a_change_takes_effect() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let zone = bench.ia.pz_create().unwrap();
    let other = bench.ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let wanted = EpParam {
        pz: Some(zone),
        recv_evd: Some(other),
        request_evd: Some(other),
        connect_evd: None,
        attributes: EpAttributes {
            recv_completion_flags: CompletionFlags::UNSIGNALLED,
            request_completion_flags: CompletionFlags::UNSIGNALLED,
            ..SMALL
        },
        ..before
    };
    let fields = EpFields::PZ
        | EpFields::RECV_EVD
        | EpFields::REQUEST_EVD
        | EpFields::CONNECT_EVD
        | EpFields::RECV_COMPLETION_FLAGS
        | EpFields::REQUEST_COMPLETION_FLAGS;
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let refused = bench.ia.post_recv(ep, &[], 0, unsignalled).unwrap_err();
    assert_eq!(refused.cause(), Cause::UnsignalledNotConfigured);
    bench.device.take_calls();
    bench.ia.ep_modify(ep, fields, &wanted).unwrap();
    assert!(
        bench
            .device
            .take_calls()
            .contains(&Call::ModifyQueuePair(bench.pair(ep)))
    );
    assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(wanted));
    bench.ia.post_recv(ep, &[], 0, unsignalled).unwrap();
    // The first receive fixes the receive flags.
    let flags = EpParam {
        attributes: SMALL,
        ..wanted
    };
    let refused = bench
        .ia
        .ep_modify(ep, EpFields::RECV_COMPLETION_FLAGS, &flags)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    // The old objects are unreferenced, the new ones are referenced.
    bench.ia.evd_free(bench.data).unwrap();
    bench.ia.evd_free(bench.connections).unwrap();
    bench.ia.pz_free(bench.pz).unwrap();
    let held = bench.ia.pz_free(zone).unwrap_err();
    assert_eq!(held.subtype(), Subtype::InvalidStatePzInUse);
    assert_eq!(
        bench.ia.evd_free(other).unwrap_err().subtype(),
        Subtype::InvalidStateEvdInUse
    );
    assert!(bench.ia.pz_query(zone, PzFields::all()).is_ok());
}

/// Endpoints on a shared receive queue: reference, zone rule, watermark attribute.
///
/// Spec: EPX-01..05, EPX-09, EPH-01, GEN-06
#[test]
fn endpoints_tie_to_a_shared_queue() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let attributes = SrqAttributes {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = bench.ia.srq_create(bench.pz, &attributes).unwrap();
    let shared = |pz, srq, attributes: &EpAttributes| {
        bench.ia.ep_create_with_srq(
            Some(pz),
            Some(bench.data),
            Some(bench.data),
            Some(bench.connections),
            srq,
            attributes,
        )
    };
    let refused = shared(bench.pz, SrqId::NULL, &SMALL).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidHandleSrq);
    let zone = bench.ia.pz_create().unwrap();
    let refused = shared(zone, srq, &SMALL).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg2);
    assert_eq!(refused.cause(), Cause::ZoneMismatch);
    let negative = EpAttributes {
        max_request_iov: -1,
        ..SMALL
    };
    let refused = shared(bench.pz, srq, &negative).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg7);
    bench.device.refuse_next(BackendError::Resources);
    assert!(shared(bench.pz, srq, &SMALL).is_err());
    bench.ia.pz_free(zone).unwrap();
    // The shared queue limits the segments of receives.
    let odd = EpAttributes {
        max_recv_iov: 999,
        srq_soft_hw: 3,
        ..SMALL
    };
    bench.device.take_calls();
    let ep = shared(bench.pz, srq, &odd).unwrap();
    let pair = bench.pair(ep);
    assert!(
        bench
            .device
            .take_calls()
            .contains(&Call::HighWatermarks(pair, Some(3), None))
    );
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.srq, Some(srq));
    let refused = bench
        .ia
        .post_recv(ep, &[], 0, CompletionFlags::empty())
        .unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidStateSrqInUse);
    let in_use = bench.ia.srq_free(srq).unwrap_err();
    assert_eq!(in_use.subtype(), Subtype::InvalidStateSrqInUse);
    // If the device refuses a watermark, the old one stays.
    let mut wanted = param;
    wanted.attributes.srq_soft_hw = 5;
    bench.device.refuse_next(BackendError::NotSupported);
    let refused = bench
        .ia
        .ep_modify(ep, EpFields::SRQ_SOFT_HW, &wanted)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
    assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(param));
    bench.ia.ep_free(ep).unwrap();
    bench.ia.srq_free(srq).unwrap();
    nothing_left(&bench);
}

/// Watermarks are checked, then set at the device, or kept until a queue pair exists.
///
/// Spec: EPH-01, EPH-03, EPH-04, EPY-02, EPY-03
#[test]
fn watermarks_and_receive_counts() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.ia.ep_create(None, None, None, None, None).unwrap();
    let refused = bench.ia.ep_set_watermark(ep, -2, 1).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg2);
    let refused = bench.ia.ep_set_watermark(ep, 1, -7).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidArg3);
    bench.ia.ep_set_watermark(ep, 2, 4).unwrap();
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let wanted = EpParam {
        pz: Some(bench.pz),
        ..param
    };
    bench.device.take_calls();
    bench.ia.ep_modify(ep, EpFields::PZ, &wanted).unwrap();
    let pair = bench.pair(ep);
    let asked = bench.device.take_calls();
    assert!(asked.contains(&Call::HighWatermarks(pair, Some(2), Some(4))));
    bench.device.refuse_next(BackendError::NotSupported);
    let refused = bench.ia.ep_set_watermark(ep, 1, 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
    bench
        .ia
        .ep_set_watermark(ep, WATERMARK_INFINITE, WATERMARK_INFINITE)
        .unwrap();
    let asked = bench.device.take_calls();
    assert_eq!(asked, [Call::HighWatermarks(pair, None, None)]);
    let unknown = bench.ia.ep_recv_query(ep).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::ModelNotSupported);
    let null = bench.ia.ep_recv_query(EpId::NULL).unwrap_err();
    assert_eq!(null.subtype(), Subtype::InvalidHandleEp);
}

/// Endpoints and zones of one adapter are foreign to another.
///
/// Spec: GEN-11
#[test]
fn objects_of_another_adapter_are_foreign() {
    let (mut storage, mut other) = (TestStorage::new(), TestStorage::new());
    let bench = Bench::new(&mut storage);
    let stranger = Bench::with(&mut other, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES);
    let foreign = stranger.endpoint();
    for error in [
        bench.ia.ep_free(foreign).unwrap_err(),
        bench.ia.ep_reset(foreign).unwrap_err(),
        bench
            .ia
            .rsp_create(QUALIFIER, Some(foreign), bench.requests)
            .unwrap_err(),
    ] {
        assert_eq!(error.subtype(), Subtype::InvalidHandleEp);
        assert_eq!(error.cause(), Cause::Foreign);
    }
    let error = bench
        .ia
        .ep_create(Some(stranger.pz), None, None, None, None)
        .unwrap_err();
    assert_eq!(error.subtype(), Subtype::InvalidHandlePz);
    assert_eq!(error.cause(), Cause::Foreign);
}
