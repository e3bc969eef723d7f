//! Connecting, disconnecting, resetting and freeing endpoints.

use std::vec::Vec;

use crate::attributes::{IaAddress, ProviderAttributes};
use crate::backend::{
    BackendError, ConnectFailure, ControlEvent, DisconnectMode, PrivateData, QueuePairKey,
};
use crate::endpoint::ConnectParam;
use crate::error::{Cause, ErrorKind, Subtype};
use crate::event::{AsyncEventKind, ConnectionEventKind, Event, REASON_SOFT_HIGH_WATERMARK};
use crate::fixture::{Bench, PEER, QUALIFIER, SMALL};
use crate::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EndpointState, EpFields, EvdFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use crate::id::{EpId, EvdId};
use crate::testing::{Call as Asked, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};
use crate::time::Instant;

fn disconnects(bench: &Bench<'_>) -> Vec<(QueuePairKey, DisconnectMode)> {
    let calls = bench.device.take_calls().into_iter();
    calls
        .filter_map(|call| match call {
            Asked::Disconnect(key, mode) => Some((key, mode)),
            _ => None,
        })
        .collect()
}

/// The cookies and statuses of the completions that wait on a dispatcher.
fn completions(bench: &Bench<'_>, evd: EvdId) -> Vec<(u64, DtoStatus)> {
    core::iter::from_fn(|| match bench.ia.evd_dequeue(evd) {
        Ok(Event::Dto(completion)) => Some((completion.cookie, completion.status)),
        Ok(other) => panic!("{other:?} is no completion"),
        Err(_) => None,
    })
    .collect()
}

/// What connect checks before it asks the device, and in which place each thing is.
///
/// Spec: EPK-01, EPK-03..05, EPK-12, EPK-14, EPU-01..03, GEN-06, GEN-10
#[test]
fn connect_checks_its_arguments() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let good = bench.param();
    let long = [0_u8; 65];
    let cases: &[(ConnectParam<'_>, ErrorKind, Subtype)] = &[
        (
            ConnectParam { timeout: 0, ..good },
            ErrorKind::InvalidParameter,
            Subtype::InvalidArg4,
        ),
        (
            ConnectParam {
                private_data: &long,
                ..good
            },
            ErrorKind::InvalidParameter,
            Subtype::InvalidArg5,
        ),
        (
            ConnectParam {
                quality: QualityOfService::from_bits_retain(0x30),
                ..good
            },
            ErrorKind::InvalidParameter,
            Subtype::InvalidArg7,
        ),
        (
            ConnectParam {
                flags: ConnectFlags::from_bits_retain(2),
                ..good
            },
            ErrorKind::InvalidParameter,
            Subtype::InvalidArg8,
        ),
        (
            ConnectParam {
                quality: QualityOfService::PREMIUM,
                ..good
            },
            ErrorKind::ModelNotSupported,
            Subtype::NoSubtype,
        ),
        (
            ConnectParam {
                flags: ConnectFlags::MULTIPATH,
                ..good
            },
            ErrorKind::ModelNotSupported,
            Subtype::NoSubtype,
        ),
        (
            ConnectParam {
                address: IaAddress::V4([10, 0, 0, 1], 1),
                ..good
            },
            ErrorKind::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        ),
    ];
    bench.device.take_calls();
    for (number, (param, kind, subtype)) in cases.iter().enumerate() {
        let error = bench.ia.ep_connect(ep, param, Instant::ZERO).unwrap_err();
        assert_eq!(
            (error.kind(), error.subtype()),
            (*kind, *subtype),
            "case {number}"
        );
        assert_eq!(bench.state(ep), EndpointState::Unconnected);
    }
    assert_eq!(bench.device.take_calls(), []);
    for (refusal, kind) in [
        (BackendError::Resources, ErrorKind::InsufficientResources),
        (BackendError::Address, ErrorKind::InvalidAddress),
    ] {
        bench.device.refuse_next(refusal);
        let error = bench.ia.ep_connect(ep, &good, Instant::ZERO).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(bench.state(ep), EndpointState::Unconnected);
    }
    let longest = [7_u8; 64];
    let good = ConnectParam {
        private_data: &longest,
        ..good
    };
    bench.ia.ep_connect(ep, &good, Instant::ZERO).unwrap();
    let asked = bench.device.take_calls();
    assert!(matches!(
        asked.as_slice(),
        [Asked::Connect { qualifier: QUALIFIER, private_data, .. }] if private_data == &longest
    ));
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.remote_address, Some(PEER));
    assert_eq!(param.remote_port, Some(QUALIFIER));
    assert!(param.local_port.is_some());
}

/// Addresses of an internet fabric: nobody and everybody are no peers.
///
/// Spec: EPK-05
#[test]
fn addresses_that_are_no_peer_are_refused() {
    let mut storage = TestStorage::new();
    let adapter = crate::attributes::IaAttributes {
        ia_address: IaAddress::V4([10, 0, 0, 1], 0),
        ..IA_ATTRIBUTES
    };
    let bench = Bench::with(&mut storage, adapter, PROVIDER_ATTRIBUTES);
    let ep = bench.endpoint();
    let connect = |address| {
        let param = ConnectParam {
            address,
            ..bench.param()
        };
        bench.ia.ep_connect(ep, &param, Instant::ZERO)
    };
    let multicast = IaAddress::V6([0xFF; 16], 1, 0);
    for address in [
        IaAddress::V4([0; 4], 9),
        IaAddress::V4([224, 0, 0, 1], 9),
        IaAddress::V6([0; 16], 9, 0),
        multicast,
    ] {
        let error = connect(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAddress);
        assert_eq!(error.subtype(), Subtype::InvalidAddressMalformed);
    }
    let error = connect(IaAddress::Node(3)).unwrap_err();
    assert_eq!(error.subtype(), Subtype::InvalidAddressUnsupported);
    connect(IaAddress::V6([1; 16], 1, 0)).unwrap();
}

/// A duplicate goes where its model is connected, with its own arguments in its own places.
///
/// Spec: EPU-01..03
#[test]
fn a_duplicate_goes_where_its_model_is() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let model = bench.connected();
    let ep = bench.endpoint();
    let best = QualityOfService::BEST_EFFORT;
    let duplicate = |ep, model, timeout, private_data: &[u8], quality| {
        let ia = &bench.ia;
        ia.ep_dup_connect(ep, model, timeout, private_data, quality, Instant::ZERO)
    };
    let subtype = |outcome: crate::error::Result<()>| outcome.unwrap_err().subtype();
    assert_eq!(
        subtype(duplicate(ep, model, 0, &[], best)),
        Subtype::InvalidArg3
    );
    assert_eq!(
        subtype(duplicate(ep, model, 1, &[0; 65], best)),
        Subtype::InvalidArg4
    );
    let odd = QualityOfService::from_bits_retain(0x30);
    assert_eq!(
        subtype(duplicate(ep, model, 1, &[], odd)),
        Subtype::InvalidArg6
    );
    assert_eq!(
        subtype(duplicate(ep, EpId::NULL, 1, &[], best)),
        Subtype::InvalidHandleEp
    );
    assert_eq!(
        subtype(duplicate(EpId::NULL, model, 1, &[], best)),
        Subtype::InvalidHandleEp
    );
    assert_eq!(
        subtype(duplicate(ep, ep, 1, &[], best)),
        Subtype::InvalidStateEpUnconnected
    );
    assert_eq!(
        subtype(duplicate(model, model, 1, &[], best)),
        Subtype::InvalidStateEpConnected
    );
    bench.device.take_calls();
    duplicate(ep, model, TIMEOUT_INFINITE, b"again", best).unwrap();
    assert!(matches!(
        bench.device.take_calls().as_slice(),
        [Asked::Connect { qualifier: QUALIFIER, private_data, .. }] if private_data == b"again"
    ));
    assert_eq!(bench.state(ep), EndpointState::ActiveConnectionPending);
}

/// Every way an attempt can fail has its event; receives are flushed, and a reset starts anew.
///
/// Spec: EPK-06..11, EPR-01, EVW-13
#[test]
fn failed_attempts_have_their_events() {
    let data = PrivateData::from_slice(b"no").unwrap();
    let cases = [
        (
            ConnectFailure::PeerRejected(data),
            ConnectionEventKind::PeerRejected,
            2,
        ),
        (
            ConnectFailure::NonPeerRejected,
            ConnectionEventKind::NonPeerRejected,
            0,
        ),
        (
            ConnectFailure::Unreachable,
            ConnectionEventKind::Unreachable,
            0,
        ),
        (ConnectFailure::TimedOut, ConnectionEventKind::TimedOut, 0),
    ];
    for (failure, kind, size) in cases {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let ep = bench.endpoint();
        bench.receive(ep, 1);
        bench.connect(ep);
        bench.device.break_pair(bench.pair(ep));
        bench.fail_attempt(ep, failure.clone());
        assert_eq!(bench.connection_events(), [(kind, ep, size)]);
        let mut private_data = [0; 8];
        assert_eq!(
            bench.ia.ep_private_data(ep, &mut private_data),
            Ok(size.into())
        );
        assert_eq!(bench.state(ep), EndpointState::Disconnected);
        // Told twice, heard once.
        bench.fail_attempt(ep, failure);
        assert_eq!(bench.connection_events(), []);
        assert_eq!(completions(&bench, bench.data), [(1, DtoStatus::Flushed)]);
        bench.ia.ep_reset(ep).unwrap();
        assert_eq!(bench.ia.ep_private_data(ep, &mut private_data), Ok(0));
        bench.connect(ep);
        bench.establish(ep);
        assert_eq!(bench.state(ep), EndpointState::Connected);
    }
}

/// ESTABLISHED carries the accept's private data, as much as the consumer has room for, until the
/// endpoint is unconnected again.
///
/// Spec: EPK-06, EVW-13, GEN-10
#[test]
fn private_data_of_the_accept_arrives() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let (mut whole, mut part) = ([0; 9], [0; 3]);
    assert_eq!(bench.ia.ep_private_data(ep, &mut whole), Ok(7));
    assert_eq!(&whole, b"welcome\0\0");
    assert_eq!(bench.ia.ep_private_data(ep, &mut part), Ok(7));
    assert_eq!(&part, b"wel");
    bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
    assert_eq!(bench.ia.ep_private_data(ep, &mut whole), Ok(7));
    bench.ia.ep_reset(ep).unwrap();
    assert_eq!(bench.ia.ep_private_data(ep, &mut whole), Ok(0));
    let gone = bench
        .ia
        .ep_private_data(EpId::NULL, &mut whole)
        .unwrap_err();
    assert_eq!(gone.subtype(), Subtype::InvalidHandleEp);
}

/// A silent peer is UNREACHABLE when the time is up, one that answered is TIMED_OUT; an answer
/// that is there by then still counts.
///
/// Spec: EPK-09, EPK-10, EPK-11, GEN-09
#[test]
fn deadlines_end_attempts() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let at = Instant::from_micros;
    let start = |timeout| {
        let ep = bench.endpoint();
        let param = ConnectParam {
            timeout,
            ..bench.param()
        };
        bench.ia.ep_connect(ep, &param, at(1000)).unwrap();
        ep
    };
    assert_eq!(bench.ia.next_deadline(), None);
    let patient = start(TIMEOUT_INFINITE);
    assert_eq!(bench.ia.next_deadline(), None);
    let late = start(500);
    let silent = start(100);
    let answered = start(200);
    let lucky = start(200);
    assert_eq!(bench.ia.next_deadline(), Some(at(1100)));
    let token = |ep: EpId| ep.handle().to_raw();
    bench.device.push_control(ControlEvent::Answered {
        queue_pair: token(answered),
    });
    bench.ia.progress(at(1099));
    assert_eq!(bench.connection_events(), []);
    bench.device.take_calls();
    bench.ia.progress(at(1100));
    let unreachable = ConnectionEventKind::Unreachable;
    assert_eq!(bench.connection_events(), [(unreachable, silent, 0)]);
    assert_eq!(
        disconnects(&bench),
        [(bench.pair(silent), DisconnectMode::Abrupt)]
    );
    assert_eq!(bench.ia.next_deadline(), Some(at(1200)));
    bench.device.push_control(ControlEvent::Established {
        queue_pair: token(lucky),
        private_data: PrivateData::new(),
    });
    bench.ia.progress(at(1300));
    assert_eq!(
        bench.connection_events(),
        [
            (ConnectionEventKind::Established, lucky, 0),
            (ConnectionEventKind::TimedOut, answered, 0)
        ]
    );
    assert_eq!(bench.ia.next_deadline(), Some(at(1500)));
    bench.device.set_deadline(Some(at(1400)));
    assert_eq!(bench.ia.next_deadline(), Some(at(1400)));
    bench.device.set_deadline(None);
    bench.ia.ep_free(late).unwrap();
    bench.ia.progress(at(u64::MAX));
    assert_eq!(bench.connection_events(), []);
    assert_eq!(bench.ia.next_deadline(), None);
    assert_eq!(bench.state(patient), EndpointState::ActiveConnectionPending);
}

/// An abrupt disconnect is over at once; what was done before it comes before its event where both
/// share a dispatcher, what is flushed comes as it comes.
///
/// Spec: EPD-01, EPD-05, EPD-06, EPD-07, DTO-04, DTO-10
#[test]
fn an_abrupt_disconnect_is_over_at_once() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let all = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = bench.ia.evd_create(8, None, all).unwrap();
    let ep = bench
        .ia
        .ep_create(
            Some(bench.pz),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&SMALL),
        )
        .unwrap();
    bench.connect(ep);
    bench.establish(ep);
    bench.send(ep, 1);
    let suppress = CompletionFlags::SUPPRESS;
    bench.ia.post_send(ep, &[], 2, suppress).unwrap();
    bench.receive(ep, 3);
    let pair = bench.pair(ep);
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    bench.device.take_calls();
    bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
    assert_eq!(disconnects(&bench), [(pair, DisconnectMode::Abrupt)]);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    // Posts are flushed at once; nothing is sent.
    bench.send(ep, 4);
    let events: Vec<_> = core::iter::from_fn(|| bench.ia.evd_dequeue(evd).ok()).collect();
    let place = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let completion = |cookie, status| {
        place(
            &move |event: &Event| matches!(event, Event::Dto(c) if c.cookie == cookie && c.status == status),
        )
    };
    let told = |wanted| {
        place(
            &move |event: &Event| matches!(event, Event::Connection { kind, .. } if *kind == wanted),
        )
    };
    let over = told(ConnectionEventKind::Disconnected);
    assert!(told(ConnectionEventKind::Established) < completion(1, DtoStatus::Success));
    assert!(completion(1, DtoStatus::Success) < over);
    // The suppressed one shows, since it failed.
    assert!(completion(2, DtoStatus::Flushed) < completion(4, DtoStatus::Flushed));
    completion(3, DtoStatus::Flushed);
    assert_eq!(events.len(), 6);
    // Again: nothing happens.
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(disconnects(&bench), []);
    assert!(bench.ia.evd_dequeue(evd).is_err());
}

/// ESTABLISHED precedes the data of its connection on a shared dispatcher.
///
/// Spec: EPK-06, DTO-11
#[test]
fn established_precedes_the_data() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let all = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = bench.ia.evd_create(8, None, all).unwrap();
    let ep = bench
        .ia
        .ep_create(
            Some(bench.pz),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&SMALL),
        )
        .unwrap();
    bench.receive(ep, 1);
    bench.connect(ep);
    let pair = bench.pair(ep);
    assert!(
        bench
            .device
            .complete_receive(pair, DtoStatus::Success, 0, false)
    );
    bench.establish(ep);
    let first = bench.ia.evd_dequeue(evd).unwrap();
    assert_eq!(first.number(), ConnectionEventKind::Established as u32);
    assert!(matches!(bench.ia.evd_dequeue(evd), Ok(Event::Dto(c)) if c.cookie == 1));
}

/// A graceful disconnect waits for the requests, refuses new ones, and tells the peer last.
///
/// Spec: EPD-02, EPD-03, EPD-05, EPS-02
#[test]
fn a_graceful_disconnect_drains() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let pair = bench.pair(ep);
    bench.receive(ep, 9);
    bench.send(ep, 1);
    bench.send(ep, 2);
    bench.device.take_calls();
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(bench.state(ep), EndpointState::DisconnectPending);
    let none = CompletionFlags::empty();
    let refused = bench.ia.post_send(ep, &[], 3, none).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidStateEpDiscPending);
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    // The device tells of the completion, since the drain asked it to.
    bench.ia.progress(Instant::ZERO);
    assert_eq!(bench.state(ep), EndpointState::DisconnectPending);
    assert_eq!(disconnects(&bench), []);
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    bench.ia.progress(Instant::ZERO);
    assert_eq!(disconnects(&bench), [(pair, DisconnectMode::Graceful)]);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    assert_eq!(
        bench.connection_events(),
        [(ConnectionEventKind::Disconnected, ep, 0)]
    );
    let (success, flushed) = (DtoStatus::Success, DtoStatus::Flushed);
    assert_eq!(
        completions(&bench, bench.data),
        [(1, success), (2, success), (9, flushed)]
    );
    // With nothing outstanding it is over on return.
    let ep = bench.connected();
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    assert_eq!(bench.connection_events().len(), 1);
    // What the consumer takes by itself drains too.
    let ep = bench.connected();
    bench.send(ep, 5);
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    bench.device.complete_request(bench.pair(ep), success);
    assert_eq!(completions(&bench, bench.data), [(5, success)]);
    bench.ia.progress(Instant::ZERO);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
}

/// A drain can be cut short: by the consumer, by the peer, by the link.
///
/// Spec: EPD-03, EPD-10
#[test]
fn a_drain_can_be_cut_short() {
    let token = |ep: EpId| ep.handle().to_raw();
    type Cut = fn(&Bench<'_>, EpId, u64);
    let cuts: [(Cut, ConnectionEventKind); 3] = [
        (
            |bench, ep, _| bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap(),
            ConnectionEventKind::Disconnected,
        ),
        (
            |bench, _, queue_pair| bench.happen(ControlEvent::Disconnected { queue_pair }),
            ConnectionEventKind::Disconnected,
        ),
        (
            |bench, _, queue_pair| bench.happen(ControlEvent::Broken { queue_pair }),
            ConnectionEventKind::Broken,
        ),
    ];
    for (cut, kind) in cuts {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(EndpointState::DisconnectPending);
        cut(&bench, ep, token(ep));
        assert_eq!(bench.state(ep), EndpointState::Disconnected);
        assert_eq!(bench.connection_events(), [(kind, ep, 0)]);
        bench.ia.progress(Instant::ZERO);
        assert_eq!(bench.connection_events(), []);
    }
}

/// Attempts of both sides can be given up; what the device says later is not heard.
///
/// Spec: EPD-04, EPD-08, EPD-09
#[test]
fn attempts_are_given_up() {
    for state in [
        EndpointState::ActiveConnectionPending,
        EndpointState::CompletionPending,
    ] {
        for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
            let mut storage = TestStorage::new();
            let bench = Bench::new(&mut storage);
            let (ep, _) = bench.in_state(state);
            bench.receive(ep, 1);
            bench.device.take_calls();
            bench.ia.ep_disconnect(ep, flags).unwrap();
            assert_eq!(
                disconnects(&bench),
                [(bench.pair(ep), DisconnectMode::Abrupt)]
            );
            let over = (ConnectionEventKind::Disconnected, ep, 0);
            assert_eq!(bench.connection_events(), [over]);
            assert_eq!(completions(&bench, bench.data), [(1, DtoStatus::Flushed)]);
            bench.establish(ep);
            bench.fail_attempt(ep, ConnectFailure::TimedOut);
            assert_eq!(bench.state(ep), EndpointState::Disconnected);
            assert_eq!(bench.connection_events(), []);
        }
    }
}

/// A failed operation breaks the connection, once, and tells the device unless it told us.
///
/// Spec: DTO-12, RMB-22, EPD-10
#[test]
fn a_failure_breaks_the_connection_once() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let broken = |ep| (ConnectionEventKind::Broken, ep, 0);
    let ep = bench.connected();
    bench.device.take_calls();
    bench.ia.connection_failed(ep);
    bench.ia.connection_failed(ep);
    assert_eq!(
        disconnects(&bench),
        [(bench.pair(ep), DisconnectMode::Broken)]
    );
    assert_eq!(bench.connection_events(), [broken(ep)]);
    let ep = bench.connected();
    bench.device.take_calls();
    bench.happen(ControlEvent::Broken {
        queue_pair: ep.handle().to_raw(),
    });
    bench.ia.connection_failed(ep);
    assert_eq!(disconnects(&bench), []);
    assert_eq!(bench.connection_events(), [broken(ep)]);
    bench.ia.ep_free(ep).unwrap();
    bench.ia.connection_failed(ep);
    assert_eq!(bench.connection_events(), []);
}

/// A free ends the connection without an event, drops completions, and gives everything back; the
/// device's later words about it find nobody.
///
/// Spec: EPF-01..03, GEN-03
#[test]
fn a_freed_endpoint_is_gone() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let survivor = bench.connected();
    let ep = bench.connected();
    let pair = bench.pair(ep);
    bench.receive(ep, 1);
    bench.send(ep, 2);
    bench.send(survivor, 3);
    bench.device.complete_request(pair, DtoStatus::Success);
    bench
        .device
        .complete_request(bench.pair(survivor), DtoStatus::Success);
    // One is taken in, one still at the device.
    assert!(bench.ia.ep_get_status(ep).unwrap().request_idle);
    bench.device.take_calls();
    bench.ia.ep_free(ep).unwrap();
    assert!(
        bench
            .device
            .take_calls()
            .contains(&Asked::DestroyQueuePair(pair))
    );
    assert_eq!(completions(&bench, bench.data), [(3, DtoStatus::Success)]);
    assert_eq!(bench.connection_events(), []);
    let again = bench.endpoint();
    assert_eq!((again.index(), again == ep), (ep.index(), false));
    for event in [
        ControlEvent::Broken {
            queue_pair: ep.handle().to_raw(),
        },
        ControlEvent::Disconnected { queue_pair: 0 },
        ControlEvent::SoftHighWatermark {
            queue_pair: u64::MAX,
        },
        ControlEvent::Answered {
            queue_pair: bench.pz.handle().to_raw(),
        },
        ControlEvent::Completions { queue: 999 },
        ControlEvent::SharedReceiveLimit { queue: 12 },
    ] {
        bench.happen(event);
    }
    assert_eq!(bench.state(again), EndpointState::Unconnected);
    assert!(bench.ia.evd_dequeue(bench.ia.async_evd()).is_err());
    let stale = bench.ia.ep_free(ep).unwrap_err();
    assert_eq!(stale.subtype(), Subtype::InvalidHandleEp);
    assert_eq!(stale.cause(), Cause::Stale);
    bench.ia.ep_free(again).unwrap();
    bench.ia.ep_free(survivor).unwrap();
    bench.ia.evd_free(bench.data).unwrap();
    bench.ia.evd_free(bench.connections).unwrap();
    bench.ia.pz_free(bench.pz).unwrap();
}

/// A reset empties both queues, drops what was not dequeued, and the endpoint works as a new one;
/// on UNCONNECTED it leaves posted receives alone.
///
/// Spec: EPR-01..03, EPG-01
#[test]
fn a_reset_starts_anew() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    for cookie in 1..=4 {
        bench.receive(ep, cookie);
        bench.send(ep, 10 + cookie);
    }
    bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
    bench.connection_events();
    // The marker technique: flushed like everything before it.
    assert!(completions(&bench, bench.data).contains(&(14, DtoStatus::Flushed)));
    bench.send(ep, 77);
    assert_eq!(completions(&bench, bench.data), [(77, DtoStatus::Flushed)]);
    bench.send(ep, 78);
    bench.receive(ep, 79);
    bench.device.refuse_next(BackendError::Device);
    let refused = bench.ia.ep_reset(ep).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InternalError);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    bench.ia.ep_reset(ep).unwrap();
    assert_eq!(bench.state(ep), EndpointState::Unconnected);
    assert_eq!(completions(&bench, bench.data), []);
    let status = bench.ia.ep_get_status(ep).unwrap();
    assert!(status.recv_idle && status.request_idle);
    for cookie in 1..=4 {
        bench.receive(ep, cookie);
    }
    bench.ia.ep_reset(ep).unwrap();
    assert!(!bench.ia.ep_get_status(ep).unwrap().recv_idle);
    bench.connect(ep);
    bench.establish(ep);
    bench.connection_events();
    for cookie in 1..=4 {
        bench.send(ep, 20 + cookie);
        bench
            .device
            .complete_request(bench.pair(ep), DtoStatus::Success);
        bench
            .device
            .complete_receive(bench.pair(ep), DtoStatus::Success, 0, false);
    }
    assert_eq!(completions(&bench, bench.data).len(), 8);
}

/// The device fails for good: one asynchronous event, and the end of every connection and attempt.
///
/// Spec: EPD-10, EPK-08, CRA-03
#[test]
fn a_dead_device_ends_everything() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let idle = bench.endpoint();
    let connected = bench.connected();
    let (connecting, _) = bench.in_state(EndpointState::ActiveConnectionPending);
    let (completing, _) = bench.in_state(EndpointState::CompletionPending);
    bench.happen(ControlEvent::DeviceFailed);
    assert!(matches!(
        bench.ia.evd_dequeue(bench.ia.async_evd()),
        Ok(Event::Async { kind: AsyncEventKind::IaCatastrophic, handle, reason: 0 })
            if handle == bench.ia.handle()
    ));
    let events = bench.connection_events();
    assert_eq!(events.len(), 3);
    for told in [
        (ConnectionEventKind::Broken, connected, 0),
        (ConnectionEventKind::NonPeerRejected, connecting, 0),
        (ConnectionEventKind::AcceptCompletionError, completing, 0),
    ] {
        assert!(events.contains(&told));
    }
    assert_eq!(bench.state(idle), EndpointState::Unconnected);
}

/// The soft high watermark is an asynchronous event on the endpoint.
///
/// Spec: EPH-02
#[test]
fn the_soft_watermark_is_reported() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    bench.happen(ControlEvent::SoftHighWatermark {
        queue_pair: ep.handle().to_raw(),
    });
    assert_eq!(
        bench.ia.evd_dequeue(bench.ia.async_evd()),
        Ok(Event::Async {
            kind: AsyncEventKind::EpBroken,
            handle: ep.handle(),
            reason: REASON_SOFT_HIGH_WATERMARK,
        })
    );
    assert_eq!(bench.state(ep), EndpointState::Connected);
}

/// One call handles a bounded number of control events, and no deadline passes over unheard ones.
///
/// Spec: EPK-10, EVW-01
#[test]
fn progress_is_bounded() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let param = ConnectParam {
        timeout: 1,
        ..bench.param()
    };
    bench.ia.ep_connect(ep, &param, Instant::ZERO).unwrap();
    for _ in 0..64 {
        bench
            .device
            .push_control(ControlEvent::Completions { queue: 999 });
    }
    bench.device.push_control(ControlEvent::Established {
        queue_pair: ep.handle().to_raw(),
        private_data: PrivateData::new(),
    });
    let now = Instant::from_micros(10);
    assert_eq!(bench.ia.progress(now), 64);
    assert_eq!(bench.state(ep), EndpointState::ActiveConnectionPending);
    assert_eq!(bench.ia.progress(now), 1);
    assert_eq!(bench.state(ep), EndpointState::Connected);
    assert_eq!(bench.ia.progress(now), 0);
}

/// Multipath is taken where the provider has it.
///
/// Spec: EPK-12
#[test]
fn multipath_needs_a_provider_that_has_it() {
    let mut storage = TestStorage::new();
    let provider = ProviderAttributes {
        supports_multipath: true,
        ..PROVIDER_ATTRIBUTES
    };
    let bench = Bench::with(&mut storage, IA_ATTRIBUTES, provider);
    let ep = bench.endpoint();
    let param = ConnectParam {
        flags: ConnectFlags::MULTIPATH,
        ..bench.param()
    };
    bench.ia.ep_connect(ep, &param, Instant::ZERO).unwrap();
}

/// A consumer that dequeues a failed completion finds the connection broken; flushed ones say nothing new.
///
/// Spec: DTO-12, EPS-04, EPV-04
#[test]
fn a_failed_completion_breaks_the_connection() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    for failure in DtoStatus::ALL {
        let ep = bench.connected();
        bench.send(ep, 1);
        bench.device.complete_request(bench.pair(ep), *failure);
        assert_eq!(completions(&bench, bench.data), [(1, *failure)]);
        let breaks = !matches!(failure, DtoStatus::Success | DtoStatus::Flushed);
        let told = (ConnectionEventKind::Broken, ep, 0);
        let expected: &[_] = if breaks { &[told] } else { &[] };
        assert_eq!(bench.connection_events(), expected, "{failure:?}");
        assert_eq!(bench.state(ep) == EndpointState::Disconnected, breaks);
        bench.ia.ep_free(ep).unwrap();
    }
}
