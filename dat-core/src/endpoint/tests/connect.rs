//! Connecting: arguments, failures, deadlines.

use super::lifecycle::{completions, disconnects};
use crate::attributes::{IaAddress, ProviderAttributes};
use crate::backend::{BackendError, ConnectFailure, ControlEvent, DisconnectMode, PrivateData};
use crate::endpoint::ConnectParam;
use crate::error::{ErrorKind, Subtype};
use crate::event::ConnectionEventKind;
use crate::flags::{
    CloseFlags, ConnectFlags, DtoStatus, EndpointState, EpFields, QualityOfService,
    TIMEOUT_INFINITE,
};
use crate::id::EpId;
use crate::testing::fixture::{Bench, PEER, QUALIFIER};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};
use crate::time::Instant;

/// `ep_connect` checks its arguments before it calls the device and reports their positions.
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
        [Call::Connect { qualifier: QUALIFIER, private_data, .. }] if private_data == &longest
    ));
    let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(param.remote_address, Some(PEER));
    assert_eq!(param.remote_port, Some(QUALIFIER));
    assert!(param.local_port.is_some());
}

/// On an IP fabric, unspecified and multicast addresses are refused.
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

/// A duplicate connects to the peer of its model and reports its own argument positions.
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
        [Call::Connect { qualifier: QUALIFIER, private_data, .. }] if private_data == b"again"
    ));
    assert_eq!(bench.state(ep), EndpointState::ActiveConnectionPending);
}

/// Each failure of an attempt has its own event and flushes the receives.
///
/// A reset allows a new attempt.
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
        // A second report of the failure is ignored.
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

/// ESTABLISHED carries the accept's private data, until the endpoint is UNCONNECTED again.
///
/// A shorter buffer gets the first part.
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

/// At the deadline, a silent peer is UNREACHABLE and one that answered is TIMED_OUT.
///
/// An ESTABLISHED that is pending at the deadline still counts.
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

/// One call handles at most 64 control events.
///
/// No attempt times out while more events are pending.
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

/// Multipath is accepted if the provider supports it.
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
