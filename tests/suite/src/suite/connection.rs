//! Connections: service points, connection requests, accept, reject, connect.

use core::time::Duration;
use std::rc::Rc;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, CrFields, DtoStatus, EndpointState, EpFields, EvdFlags,
    ProviderFields, PspFields, PspFlags, QualityOfService, RspFields, TIMEOUT_INFINITE,
};
use dat_core::id::{CrId, EpId, EvdId, PspId, RspId};
use dat_core::time::Instant;
use dat_core::{Error, ErrorKind, Subtype};

use crate::fixture::errors::{BAD_CR, BAD_EP, BAD_RSP, EP_NOT_READY};
use crate::fixture::{
    Adapter, Net, Party, PartyOptions, Testbed, equal, granted, refused, same_bytes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Creates a dispatcher for connection requests.
#[track_caller]
pub(super) fn requests<T: Testbed>(party: &Party<T>, length: i32) -> EvdId {
    granted(party.ia.evd_create(length, None, EvdFlags::CR))
}

/// Creates a service point; returns its dispatcher, its qualifier and its handle.
#[track_caller]
pub(super) fn listen<T: Testbed>(net: &Net<'_, T>, party: &Party<T>) -> (EvdId, u64, PspId) {
    let evd = requests(party, 8);
    let qualifier = net.qualifier();
    let psp = granted(party.ia.psp_create(qualifier, evd, PspFlags::Consumer));
    (evd, qualifier, psp)
}

/// Returns parameters to connect to a qualifier at an adapter.
pub(super) fn parameters<'a, T: Testbed>(
    net: &Net<'_, T>,
    to: &Adapter<T>,
    qualifier: u64,
    private_data: &'a [u8],
) -> ConnectParam<'a> {
    ConnectParam {
        address: net.address(to),
        qualifier,
        timeout: TIMEOUT_INFINITE,
        private_data,
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}

#[track_caller]
fn max_private_data<T: Testbed>(ia: &Adapter<T>) -> usize {
    let param = granted(ia.ia_query(Default::default(), ProviderFields::MAX_PRIVATE_DATA_SIZE));
    usize::try_from(param.provider.max_private_data_size).expect("a size")
}

/// Expects that a connection attempt failed.
///
/// The event has this kind, the endpoint is disconnected, and receive 0xF1 is flushed.
#[track_caller]
pub(super) fn failed<T: Testbed>(net: &Net<'_, T>, party: &Party<T>, kind: ConnectionEventKind) {
    assert_eq!(net.connection(party), kind);
    assert_eq!(party.state(), EndpointState::Disconnected);
    net.receive_ends(party, 0xF1, DtoStatus::Flushed);
    net.quiet(party);
}

/// A connection request carries private data, and its accept carries private data back.
///
/// The event names service point, qualifier and request. The request names the caller's address and
/// port. The accept's private data comes with ESTABLISHED, only on the active side.
///
/// Spec: PSC-01, CRQ-01, CRA-01, CRA-03, CRA-04, EPK-01, EPK-02, EPK-06, EVW-12, EVW-13, GEN-10,
/// EPQ-02, EPQ-03, GEN-08, E11, E13
pub fn connection_carries_private_data_both_ways<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for length in [0, 1, max_private_data::<T>(&net.adapter())] {
        let (left, right) = net.unconnected_pair(&PartyOptions::default());
        let (evd, qualifier, psp) = listen(&net, &right);
        let sent: Vec<u8> = (0..length).map(|at| at as u8 ^ 0x5A).collect();
        let answered: Vec<u8> = (0..length).map(|at| at as u8 ^ 0xA5).collect();
        granted(net.try_connect(&left, &right.ia, qualifier, &sent));
        assert_eq!(left.state(), EndpointState::ActiveConnectionPending);
        let pending = granted(left.ia.ep_query(left.ep, EpFields::all()));
        assert_eq!(pending.remote_address, Some(net.address(&right.ia)));
        assert_eq!(pending.remote_port, Some(qualifier));
        let event = net.event(&right.ia, evd);
        assert_eq!(event.number(), 0x2001);
        let Event::ConnectionRequest {
            service_point,
            qualifier: to,
            cr,
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((service_point, to), (Some(psp), qualifier));
        let param = granted(right.ia.cr_query(cr, CrFields::all()));
        assert_eq!(param.remote_address, Some(net.address(&left.ia)));
        assert_eq!(Some(param.remote_port), pending.local_port);
        assert_eq!(param.local_ep, None);
        equal("private data", &param.private_data, &sent);
        refused(
            right.ia.cr_query(cr, CrFields::from_bits_retain(0x20)),
            Error::invalid_argument(2),
        );
        granted(right.ia.cr_accept(cr, Some(right.ep), &answered));
        refused(right.ia.cr_query(cr, CrFields::all()), BAD_CR);
        for (party, size) in [(&left, length), (&right, 0)] {
            let event = net.event(&party.ia, party.connect);
            assert_eq!(
                event,
                Event::Connection {
                    kind: ConnectionEventKind::Established,
                    ep: party.ep,
                    private_data_size: size as u16,
                }
            );
            assert_eq!(party.state(), EndpointState::Connected);
        }
        let mut space = vec![0; length + 8];
        let size = granted(left.ia.ep_private_data(left.ep, &mut space));
        equal("private data", &space[..size], &answered);
        net.check_transfer(&left, &right);
        let connected = granted(left.ia.ep_query(left.ep, EpFields::all()));
        assert_eq!(connected.remote_address, Some(net.address(&right.ia)));
        assert!(connected.local_port.is_some());
    }
}

/// Every call refuses more private data than the provider carries, without effect.
///
/// Spec: GEN-10, CRA-02, CRA-05, EPK-14, IAQ-07
pub fn private_data_is_limited<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let limit = max_private_data::<T>(&left.ia);
    assert!(limit >= 64);
    let too_much = vec![1; limit + 1];
    let (evd, qualifier, _) = listen(&net, &right);
    net.no_effect(&[&left, &right], Error::invalid_argument(5), || {
        net.try_connect(&left, &right.ia, qualifier, &too_much)
    });
    net.silent(&right.ia, evd);
    granted(net.try_connect(&left, &right.ia, qualifier, &too_much[1..]));
    let cr = net.request(&right.ia, evd);
    refused(
        right.ia.cr_accept(cr, Some(right.ep), &too_much),
        Error::invalid_argument(3),
    );
    assert_eq!(right.state(), EndpointState::Unconnected);
    let param = granted(right.ia.cr_query(cr, CrFields::all()));
    equal("private data", &param.private_data, &too_much[1..]);
    refused(
        right.ia.cr_reject(cr, &too_much),
        Error::invalid_argument(2),
    );
    granted(right.ia.cr_accept(cr, Some(right.ep), &too_much[1..]));
    assert_eq!(net.connection(&left), ConnectionEventKind::Established);
}

/// The length of the dispatcher's queue is the backlog; further requests are refused.
///
/// The consumer does not see them.
///
/// Spec: PSC-02, EPK-08, EPK-11
pub fn requests_beyond_the_backlog_are_refused<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let host = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let evd = requests(&host, 2);
    let length = granted(host.ia.evd_query(evd, Default::default())).qlen as usize;
    let qualifier = net.qualifier();
    granted(host.ia.psp_create(qualifier, evd, PspFlags::Consumer));
    let ia = net.adapter();
    let callers: Vec<_> = (0..length + 2)
        .map(|_| {
            let caller = Party::new(&ia, &PartyOptions::default());
            caller.receive_into(&[], 0xF1);
            granted(net.try_connect(&caller, &host.ia, qualifier, &[]));
            caller
        })
        .collect();
    net.until("the refusals", || {
        let refusals = callers
            .iter()
            .filter(|caller| caller.state() == EndpointState::Disconnected);
        (refusals.count() == 2).then_some(())
    });
    for caller in &callers {
        if caller.state() == EndpointState::Disconnected {
            failed(&net, caller, ConnectionEventKind::NonPeerRejected);
        } else {
            assert_eq!(caller.state(), EndpointState::ActiveConnectionPending);
        }
    }
    for _ in 0..length {
        let cr = net.request(&host.ia, evd);
        granted(host.ia.cr_reject(cr, &[]));
    }
}

/// A qualifier belongs to one service point at a time, public or reserved.
///
/// A freed qualifier can be used again.
///
/// Spec: PSC-04, PSA-01, PSQ-01, PSF-01, RSC-05, RSQ-01, RSF-01, GEN-03, GEN-08, GEN-11, E3, E4
pub fn service_points_own_their_qualifier<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let evd = requests(&right, 8);
    let qualifier = net.qualifier();
    let taken = Error::new(ErrorKind::ConnQualInUse, Subtype::NoSubtype);
    let psp = granted(right.ia.psp_create(qualifier, evd, PspFlags::Consumer));
    refused(
        right.ia.psp_create(qualifier, evd, PspFlags::Consumer),
        taken,
    );
    net.no_effect(&[&right], taken, || {
        right.ia.rsp_create(qualifier, Some(right.ep), evd)
    });
    let param = granted(right.ia.psp_query(psp, PspFields::all()));
    assert_eq!(
        (param.ia, param.qualifier, param.evd, param.flags),
        (right.ia.handle(), qualifier, evd, PspFlags::Consumer)
    );
    refused(
        right.ia.psp_query(psp, PspFields::from_bits_retain(0x10)),
        Error::invalid_argument(2),
    );
    granted(right.ia.psp_free(psp));
    let rsp = granted(right.ia.rsp_create(qualifier, Some(right.ep), evd));
    refused(
        right.ia.psp_create(qualifier, evd, PspFlags::Consumer),
        taken,
    );
    let param = granted(right.ia.rsp_query(rsp, RspFields::all()));
    assert_eq!(
        (param.ia, param.qualifier, param.evd, param.ep),
        (right.ia.handle(), qualifier, evd, Some(right.ep))
    );
    refused(
        right.ia.rsp_query(rsp, RspFields::from_bits_retain(0x10)),
        Error::invalid_argument(2),
    );
    assert_eq!(right.state(), EndpointState::Reserved);
    granted(right.ia.rsp_free(rsp));
    assert_eq!(right.state(), EndpointState::Unconnected);
    let mut chosen = Vec::new();
    for _ in 0..4 {
        let (psp, qualifier) = granted(right.ia.psp_create_any(evd, PspFlags::Consumer));
        let param = granted(right.ia.psp_query(psp, PspFields::all()));
        assert_eq!(param.qualifier, qualifier);
        assert!(!chosen.contains(&qualifier) && qualifier >= 1024);
        chosen.push(qualifier);
        granted(net.try_connect(&left, &right.ia, qualifier, &[]));
        let cr = net.request(&right.ia, evd);
        granted(right.ia.cr_reject(cr, &[]));
        assert_eq!(net.connection(&left), ConnectionEventKind::PeerRejected);
        granted(left.ia.ep_reset(left.ep));
    }
    let bad_psp = Error::invalid_handle(Subtype::InvalidHandlePsp);
    let bad_rsp = BAD_RSP;
    for bad in [
        PspId::NULL,
        psp,
        PspId::from_handle(rsp.handle()),
        PspId::from_handle(left.ia.handle()),
    ] {
        refused(right.ia.psp_query(bad, PspFields::all()), bad_psp);
        refused(right.ia.psp_free(bad), bad_psp);
    }
    for bad in [RspId::NULL, rsp, RspId::from_handle(psp.handle())] {
        refused(right.ia.rsp_query(bad, RspFields::all()), bad_rsp);
        refused(right.ia.rsp_free(bad), bad_rsp);
    }
    let next = net.qualifier();
    for bad in [EvdId::NULL, left.ia.async_evd(), right.request] {
        let expected = Error::invalid_handle(Subtype::InvalidHandleEvdCr);
        refused(right.ia.psp_create(next, bad, PspFlags::Consumer), expected);
        refused(right.ia.rsp_create(next, Some(right.ep), bad), expected);
    }
    for bad in [EpId::NULL, left.ep, EpId::from_handle(evd.handle())] {
        refused(right.ia.rsp_create(next, Some(bad), evd), BAD_EP);
    }
    assert_eq!(right.state(), EndpointState::Unconnected);
}

/// A freed service point refuses new requests, as if it had never listened.
///
/// Pending requests stay valid.
///
/// Spec: PSF-01, EPK-08, EPK-11
pub fn freed_service_point_leaves_its_requests<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, psp) = listen(&net, &right);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    granted(right.ia.psp_free(psp));
    let late = Party::new(&left.ia, &PartyOptions::default());
    late.receive_into(&[], 0xF1);
    granted(net.try_connect(&late, &right.ia, qualifier, &[]));
    failed(&net, &late, ConnectionEventKind::NonPeerRejected);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    net.established(&left, &right);
    net.check_transfer(&left, &right);
}

/// A reserved service point yields one request, whose arrival ends it.
///
/// The next caller finds no listener.
///
/// Spec: RSC-01, RSC-03, RSC-04, EPF-01, E5, E7
pub fn reserved_service_point_serves_once<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let evd = requests(&right, 8);
    let qualifier = net.qualifier();
    let rsp = granted(right.ia.rsp_create(qualifier, Some(right.ep), evd));
    right.receive_into(&[right.memory.segment(0, 8)], 1);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let event = net.event(&right.ia, evd);
    let Event::ConnectionRequest {
        service_point, cr, ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert_eq!(service_point, None);
    assert_eq!(right.state(), EndpointState::PassiveConnectionPending);
    refused(right.ia.rsp_free(rsp), BAD_RSP);
    let param = granted(right.ia.cr_query(cr, CrFields::all()));
    assert_eq!(param.local_ep, Some(right.ep));
    let late = Party::new(&left.ia, &PartyOptions::default());
    late.receive_into(&[], 0xF1);
    granted(net.try_connect(&late, &right.ia, qualifier, &[]));
    failed(&net, &late, ConnectionEventKind::NonPeerRejected);
    granted(right.ia.cr_accept(cr, None, &[]));
    assert_eq!(right.state(), EndpointState::CompletionPending);
    net.established(&left, &right);
    // The receive that was posted before the connection takes the first message.
    left.send_from(&[left.memory.segment(0, 8)], 2);
    assert_eq!(net.receive_completion(&right).cookie, 1);
    granted(right.ia.evd_free(evd));
}

/// The provider supplies an endpoint for a reserved service point that has none.
///
/// The endpoint comes with the connection request.
///
/// Spec: RSC-02, PSC-03, E2
pub fn reserved_service_point_may_bring_an_endpoint<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let evd = requests(&right, 8);
    let qualifier = net.qualifier();
    granted(right.ia.rsp_create(qualifier, None, evd));
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    let param = granted(right.ia.cr_query(cr, CrFields::all()));
    let ep = param.local_ep.expect("an endpoint");
    let lent = granted(right.ia.ep_query(ep, EpFields::all()));
    assert_eq!(lent.state, EndpointState::TentativeConnectionPending);
    assert_eq!(
        (lent.pz, lent.recv_evd, lent.request_evd, lent.connect_evd),
        (None, None, None, None)
    );
    granted(right.ia.cr_reject(cr, &[]));
    assert_eq!(net.connection(&left), ConnectionEventKind::PeerRejected);
}

/// A bad accept has no effect on endpoint, request and peer.
///
/// Either its endpoint or its request is bad.
///
/// Spec: CRA-02, CRA-05, CRR-01, CRH-01, GEN-03, GEN-11
pub fn bad_accepts_have_no_effect<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    let bad_ep = BAD_EP;
    for bad in [
        None,
        Some(EpId::NULL),
        Some(left.ep),
        Some(EpId::from_handle(right.zone.handle())),
    ] {
        refused(right.ia.cr_accept(cr, bad, &[]), bad_ep);
    }
    for bad in [
        CrId::NULL,
        CrId::from_handle(left.ia.handle()),
        CrId::from_handle(evd.handle()),
    ] {
        refused(right.ia.cr_accept(bad, Some(right.ep), &[]), BAD_CR);
        refused(right.ia.cr_reject(bad, &[]), BAD_CR);
        refused(right.ia.cr_handoff(bad, qualifier), BAD_CR);
        refused(right.ia.cr_query(bad, CrFields::all()), BAD_CR);
    }
    let nobody = right
        .ia
        .cr_handoff(cr, qualifier + 1_000)
        .expect_err("nobody listens");
    assert_eq!(nobody.kind(), ErrorKind::InvalidParameter, "{nobody}");
    assert_eq!(right.state(), EndpointState::Unconnected);
    assert_eq!(left.state(), EndpointState::ActiveConnectionPending);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    refused(right.ia.cr_accept(cr, Some(right.ep), &[]), BAD_CR);
    refused(right.ia.cr_reject(cr, &[]), BAD_CR);
    assert_eq!(net.connection(&left), ConnectionEventKind::Established);
}

/// A rejection reaches the active side as PEER_REJECTED and flushes its receives.
///
/// Spec: CRR-01, EPK-07, EPK-11, E12
pub fn rejection_reaches_the_active_side<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    left.receive_into(&[], 0xF1);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    granted(right.ia.cr_reject(cr, b"no"));
    failed(&net, &left, ConnectionEventKind::PeerRejected);
}

/// A connect to a qualifier without a listener ends with NON_PEER_REJECTED.
///
/// Spec: EPK-08, EPK-11, EPR-01, E12
pub fn nobody_listening_refuses<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    for _ in 0..2 {
        left.receive_into(&[], 0xF1);
        granted(net.try_connect(&left, &right.ia, net.qualifier(), &[]));
        failed(&net, &left, ConnectionEventKind::NonPeerRejected);
        granted(left.ia.ep_reset(left.ep));
        assert_eq!(left.state(), EndpointState::Unconnected);
    }
    net.connect(&left, &right);
}

/// A connect whose request is not answered in time ends with TIMED_OUT.
///
/// The peer's request stays; its late accept fails.
///
/// Spec: EPK-03, EPK-10, EPK-11, GEN-09, E12, E14
pub fn unanswered_request_times_out<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    left.receive_into(&[], 0xF1);
    let timeout = 500_000;
    let wanted = ConnectParam {
        timeout,
        ..parameters(&net, &right.ia, qualifier, &[])
    };
    let start = bed.now();
    granted(left.ia.ep_connect(left.ep, &wanted, start));
    let cr = net.request(&right.ia, evd);
    net.progress();
    let state = left.state();
    assert!(
        state == EndpointState::ActiveConnectionPending || bed.now() > later(start, timeout),
        "{state:?}"
    );
    bed.advance(later(start, timeout));
    failed(&net, &left, ConnectionEventKind::TimedOut);
    // The request is still pending; its accept comes too late.
    right.receive_into(&[], 0xF1);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    failed(&net, &right, ConnectionEventKind::AcceptCompletionError);
}

pub(super) fn later(start: Instant, micros: u32) -> Instant {
    let passed = Duration::from_micros(u64::from(micros) + 1).as_micros() as u64;
    Instant::from_micros(start.as_micros() + passed)
}

/// Timeout, quality, flags, address and handle of a connect are checked, without effect.
///
/// Spec: EPK-03..05, EPK-12, EPK-14, GEN-03, GEN-06
pub fn bad_connects_have_no_effect<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let good = parameters(&net, &right.ia, net.qualifier(), &[]);
    let provider = granted(left.ia.ia_query(Default::default(), ProviderFields::all())).provider;
    let attempt = |wanted: ConnectParam<'_>, expected| {
        net.no_effect(&[&left, &right], expected, || {
            left.ia.ep_connect(left.ep, &wanted, bed.now())
        });
    };
    attempt(
        ConnectParam { timeout: 0, ..good },
        Error::invalid_argument(4),
    );
    attempt(
        ConnectParam {
            flags: ConnectFlags::from_bits_retain(2),
            ..good
        },
        Error::invalid_argument(8),
    );
    attempt(
        ConnectParam {
            quality: QualityOfService::from_bits_retain(0x10),
            ..good
        },
        Error::invalid_argument(7),
    );
    if !provider.supports_multipath {
        attempt(
            ConnectParam {
                flags: ConnectFlags::MULTIPATH,
                ..good
            },
            Error::model_not_supported(),
        );
    }
    for quality in [QualityOfService::LOW_LATENCY, QualityOfService::PREMIUM] {
        if !provider.qos_supported.contains(quality) {
            attempt(
                ConnectParam { quality, ..good },
                Error::model_not_supported(),
            );
        }
    }
    let wrong_family = match good.address {
        IaAddress::Node(_) => IaAddress::V4([192, 0, 2, 1], 0),
        IaAddress::V4(..) | IaAddress::V6(..) => IaAddress::Node(1),
    };
    let wanted = ConnectParam {
        address: wrong_family,
        ..good
    };
    let error = left
        .ia
        .ep_connect(left.ep, &wanted, bed.now())
        .expect_err("no address of this fabric");
    assert_eq!(error.kind(), ErrorKind::InvalidAddress, "{error}");
    assert_eq!(left.state(), EndpointState::Unconnected);
    for bad in [
        EpId::NULL,
        right.ep,
        EpId::from_handle(left.request.handle()),
    ] {
        refused(left.ia.ep_connect(bad, &good, bed.now()), BAD_EP);
    }
    let bare = granted(left.ia.ep_create(
        None,
        Some(left.receive),
        Some(left.request),
        Some(left.connect),
        None,
    ));
    refused(left.ia.ep_connect(bare, &good, bed.now()), EP_NOT_READY);
}

/// A duplicate connects to the peer of its model, with its own private data.
///
/// Spec: EPU-01..03, GEN-10
pub fn duplicate_connects_to_the_same_peer<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    assert_eq!(net.connection(&left), ConnectionEventKind::Established);
    let again = Party::new(&left.ia, &PartyOptions::default());
    let other = Party::new(&right.ia, &PartyOptions::default());
    let best_effort = QualityOfService::BEST_EFFORT;
    let duplicate = |timeout, private_data: &[u8], quality| {
        let now = bed.now();
        left.ia
            .ep_dup_connect(again.ep, left.ep, timeout, private_data, quality, now)
    };
    refused(duplicate(0, &[], best_effort), Error::invalid_argument(3));
    let too_much = vec![0; max_private_data::<T>(&left.ia) + 1];
    refused(
        duplicate(TIMEOUT_INFINITE, &too_much, best_effort),
        Error::invalid_argument(4),
    );
    assert_eq!(again.state(), EndpointState::Unconnected);
    granted(duplicate(TIMEOUT_INFINITE, b"twin", best_effort));
    let cr = net.request(&right.ia, evd);
    let param = granted(right.ia.cr_query(cr, CrFields::all()));
    equal("private data", &param.private_data, b"twin");
    granted(right.ia.cr_accept(cr, Some(other.ep), &[]));
    net.established(&again, &other);
    net.check_transfer(&again, &other);
    net.check_transfer(&left, &right);
}

/// A request can be handed to another service point of the adapter.
///
/// The active side does not notice.
///
/// Spec: CRH-01
pub fn request_can_be_handed_off<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (first, second) = (requests(&right, 8), requests(&right, 8));
    let (here, there) = (net.qualifier(), net.qualifier());
    granted(right.ia.psp_create(here, first, PspFlags::Consumer));
    let target = granted(right.ia.psp_create(there, second, PspFlags::Consumer));
    granted(net.try_connect(&left, &right.ia, here, b"hello"));
    let cr = net.request(&right.ia, first);
    granted(right.ia.cr_handoff(cr, there));
    refused(right.ia.cr_query(cr, CrFields::all()), BAD_CR);
    let event = net.event(&right.ia, second);
    let Event::ConnectionRequest {
        service_point, cr, ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert_eq!(service_point, Some(target));
    let param = granted(right.ia.cr_query(cr, CrFields::all()));
    equal("private data", &param.private_data, b"hello");
    assert_eq!(left.state(), EndpointState::ActiveConnectionPending);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    net.established(&left, &right);
    net.check_transfer(&left, &right);
}

/// A connection works with the read depths of both ends, or its setup fails.
///
/// Both endpoints keep their depths, and reads beyond the depth wait and succeed.
///
/// Spec: EPK-13, CRA-06, EPB-05, EPC-10
pub fn read_depths_are_agreed_at_the_connection<T: Testbed>(bed: &T) {
    for (out, into) in [(1, 1), (1, 4), (4, 4)] {
        let net = Net::new(bed);
        let depth = |wanted: &mut EpAttributes| {
            wanted.max_rdma_read_out = out;
            wanted.max_rdma_read_in = into;
        };
        let (left, right) = net.pair(&PartyOptions::with(depth));
        for (near, far) in [(&left, &right), (&right, &left)] {
            let param = granted(near.ia.ep_query(near.ep, EpFields::all()));
            assert_eq!(param.attributes.max_rdma_read_out, out);
            assert_eq!(param.attributes.max_rdma_read_in, into);
            for cookie in 0..8 {
                near.read(
                    &[near.memory.segment(0, 64)],
                    cookie,
                    &far.memory.remote(0, 64),
                    DEFAULT,
                );
            }
            for cookie in 0..8 {
                net.success(near, cookie);
            }
        }
    }
}

/// Two endpoints of one adapter can be connected to each other.
///
/// Spec: IAO-01
pub fn adapters_connect_to_themselves<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let options = PartyOptions::default();
    let (left, right) = (Party::new(&ia, &options), Party::new(&ia, &options));
    net.connect(&left, &right);
    assert!(Rc::ptr_eq(&left.ia, &right.ia));
    left.memory.fill(1);
    left.write(
        &[left.memory.segment(0, 64)],
        1,
        &right.memory.remote(0, 64),
        DEFAULT,
    );
    net.success(&left, 1);
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 64);
    net.disconnect(&left, &right);
}
