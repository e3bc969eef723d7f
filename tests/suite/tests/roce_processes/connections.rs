//! Connections between processes: accepted, rejected, refused, too late, cancelled.

use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CloseFlags, CrFields, DtoStatus, EndpointState, EpFields, EvdFlags, ProviderFields, PspFlags,
    TIMEOUT_INFINITE,
};
use dat_core::{Error, ErrorKind, Subtype};
use dat_tests::fixture::{PartyOptions, Testbed as _, equal, granted, refused};

use crate::runner::two_sides;
use crate::side::{Party, Side};

/// Lengths of private data: none, the largest of other programs, the first that needs the mark.
const LENGTHS: [usize; 5] = [0, 1, 55, 56, LIMIT];
/// Most bytes of private data, in each direction.
const LIMIT: usize = 64;

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| at as u8 ^ seed).collect()
}

/// Expects that a connection attempt failed, and that receive 0xF1 was flushed.
fn failed(side: &Side, party: &Party, kind: ConnectionEventKind) {
    side.ends(party, kind);
    side.net.receive_ends(party, 0xF1, DtoStatus::Flushed);
    side.net.quiet(party);
}

/// Two processes at one address connect; each knows the other by its address and port.
///
/// Spec: PSC-01, CRQ-01, CRA-01, CRA-03, EPK-01, EPK-02, EPK-06, EVW-12, EVW-13, EPQ-02, EPQ-03,
/// E10, E11, E13, ROCE-44, ROCE-46, ROCE-47
#[test]
fn processes_connect() {
    two_sides(
        |near| {
            let party = near.party();
            near.begin_connect(&party, near.other(), &[]);
            assert_eq!(party.state(), EndpointState::ActiveConnectionPending);
            near.established(&party);
            assert_eq!(party.state(), EndpointState::Connected);
            let found = granted(party.ia.ep_query(party.ep, EpFields::all()));
            let address = near.parameters(near.other(), &[]).address;
            assert_eq!(found.remote_address, Some(address));
            assert_eq!(found.remote_port, Some(near.qualifier(near.other())));
            near.tell("the port", &[found.local_port.expect("a port")]);
        },
        |far| {
            let party = far.party();
            let service = far.listen(&party);
            let event = far.net.event(&party.ia, service.requests);
            let Event::ConnectionRequest {
                service_point,
                qualifier,
                cr,
                ..
            } = event
            else {
                panic!("{event:?}");
            };
            let listened = (Some(service.psp), far.qualifier(far.number));
            assert_eq!((service_point, qualifier), listened);
            let request = granted(party.ia.cr_query(cr, CrFields::all()));
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            far.established(&party);
            assert_eq!(party.state(), EndpointState::Connected);
            assert_eq!(far.hear("the port"), [request.remote_port]);
        },
    );
}

/// Private data of every length reaches the other process, with the request and with the accept.
///
/// Spec: GEN-10, CRQ-01, CRA-01, CRA-04, EPK-06, IAQ-07, ROCE-47
#[test]
fn private_data_goes_both_ways() {
    two_sides(
        |near| {
            for length in LENGTHS {
                near.step(&format!("{length} bytes"));
                let party = near.party();
                near.begin_connect(&party, near.other(), &bytes(length, 0x5A));
                let event = near.net.event(&party.ia, party.connect);
                let established = Event::Connection {
                    kind: ConnectionEventKind::Established,
                    ep: party.ep,
                    private_data_size: length as u16,
                };
                assert_eq!(event, established);
                let mut space = vec![0; LIMIT + 8];
                let size = granted(party.ia.ep_private_data(party.ep, &mut space));
                equal("the answer", &space[..size], &bytes(length, 0xA5));
                near.meet("established");
            }
        },
        |far| {
            let host = far.party();
            for length in LENGTHS {
                let party = Party::in_zone(&host.ia, host.zone, &PartyOptions::default());
                let service = far.listen(&party);
                let cr = far.request(&party, &service);
                let request = granted(party.ia.cr_query(cr, CrFields::all()));
                equal("the request", &request.private_data, &bytes(length, 0x5A));
                granted(party.ia.cr_accept(cr, Some(party.ep), &bytes(length, 0xA5)));
                let event = far.net.event(&party.ia, party.connect);
                let established = Event::Connection {
                    kind: ConnectionEventKind::Established,
                    ep: party.ep,
                    private_data_size: 0,
                };
                assert_eq!(event, established);
                far.unlisten(&party, service);
                far.meet("established");
            }
        },
    );
}

/// One byte of private data more than the provider carries is refused, and nothing is sent.
///
/// Spec: GEN-10, CRA-02, CRA-05, EPK-14, IAQ-07
#[test]
fn more_private_data_is_refused() {
    let too_much = [1; LIMIT + 1];
    two_sides(
        |near| {
            let party = near.party();
            let field = ProviderFields::MAX_PRIVATE_DATA_SIZE;
            let found = granted(party.ia.ia_query(Default::default(), field));
            assert_eq!(found.provider.max_private_data_size, LIMIT as i32);
            near.hear("the listener");
            let wanted = near.parameters(near.other(), &too_much);
            near.net
                .no_effect(&[&party], Error::invalid_argument(5), || {
                    near.try_connect(&party, &wanted)
                });
            near.meet("refused");
            let wanted = near.parameters(near.other(), &too_much[1..]);
            granted(near.try_connect(&party, &wanted));
            near.established(&party);
        },
        |far| {
            let party = far.party();
            let service = far.listen(&party);
            far.meet("refused");
            let cr = far.request(&party, &service);
            let accept = |data| party.ia.cr_accept(cr, Some(party.ep), data);
            refused(accept(&too_much), Error::invalid_argument(3));
            refused(
                party.ia.cr_reject(cr, &too_much),
                Error::invalid_argument(2),
            );
            assert_eq!(party.state(), EndpointState::Unconnected);
            let request = granted(party.ia.cr_query(cr, CrFields::all()));
            equal("the request", &request.private_data, &too_much[1..]);
            granted(accept(&too_much[1..]));
            far.established(&party);
            far.net.silent(&party.ia, service.requests);
        },
    );
}

/// A rejection reaches the caller, flushes its receives and leaves it able to connect.
///
/// Spec: CRR-01, EPK-07, EPK-11, E12, E23
#[test]
fn rejection_reaches_the_caller() {
    two_sides(
        |near| {
            let party = near.party();
            party.receive_into(&[], 0xF1);
            near.begin_connect(&party, near.other(), b"please");
            failed(near, &party, ConnectionEventKind::PeerRejected);
            near.reset(&party);
            near.meet("rejected");
            near.connect(&party);
        },
        |far| {
            let party = far.party();
            let service = far.listen(&party);
            let cr = far.request(&party, &service);
            granted(party.ia.cr_reject(cr, b"no"));
            far.net.silent(&party.ia, service.requests);
            far.unlisten(&party, service);
            far.meet("rejected");
            far.accept(&party);
        },
    );
}

/// A qualifier without a listener refuses, before the other process listened and after it.
///
/// Spec: EPK-08, EPK-11, PSF-01, EPR-01, E12, ROCE-44, ROCE-46, ROCE-54
#[test]
fn nobody_listening_refuses() {
    two_sides(
        |near| {
            let party = near.party();
            let refusal = || {
                party.receive_into(&[], 0xF1);
                let wanted = near.parameters(near.other(), &[]);
                granted(near.try_connect(&party, &wanted));
                failed(near, &party, ConnectionEventKind::NonPeerRejected);
                near.reset(&party);
                assert_eq!(party.state(), EndpointState::Unconnected);
            };
            refusal();
            near.meet("refused");
            near.connect(&party);
            near.meet("connected");
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
            near.ends(&party, ConnectionEventKind::Disconnected);
            near.reset(&party);
            refusal();
        },
        |far| {
            // The adapter is there, but no service point.
            let party = far.party();
            far.meet("refused");
            far.accept(&party);
            far.meet("connected");
            far.ends(&party, ConnectionEventKind::Disconnected);
        },
    );
}

/// A process that listens excludes the other one, until it frees the service point.
///
/// The connections that it accepted there keep the qualifier until they have ended.
///
/// Spec: PSC-04, PSF-01, RSC-05, ROCE-44
#[test]
fn one_process_has_a_qualifier() {
    let taken = Error::new(ErrorKind::ConnQualInUse, Subtype::NoSubtype);
    two_sides(
        |near| {
            let party = near.party();
            let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
            let qualifier = near.qualifier(near.other());
            let listen = || {
                let flags = PspFlags::Consumer;
                party.ia.psp_create(qualifier, requests, flags)
            };
            let spare = Party::in_zone(&party.ia, party.zone, &PartyOptions::default());
            let reserve = || party.ia.rsp_create(qualifier, Some(spare.ep), requests);
            near.begin_connect(&party, near.other(), &[]);
            near.established(&party);
            refused(listen(), taken);
            refused(reserve(), taken);
            near.meet("listening");
            near.meet("freed");
            refused(listen(), taken);
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
            near.ends(&party, ConnectionEventKind::Disconnected);
            let psp = near.net.until("the qualifier", || listen().ok());
            granted(party.ia.psp_free(psp));
            let rsp = near.net.until("the qualifier", || reserve().ok());
            granted(party.ia.rsp_free(rsp));
        },
        |far| {
            let party = far.party();
            let service = far.listen(&party);
            let cr = far.request(&party, &service);
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            far.established(&party);
            far.meet("listening");
            far.unlisten(&party, service);
            far.meet("freed");
            far.ends(&party, ConnectionEventKind::Disconnected);
        },
    );
}

/// A request that is not answered in time ends with TIMED_OUT; the late accept fails.
///
/// Spec: EPK-03, EPK-10, EPK-11, GEN-09, CRA-03, E12, E14, ROCE-176
#[test]
fn unanswered_request_times_out() {
    two_sides(
        |near| {
            let party = near.party();
            party.receive_into(&[], 0xF1);
            near.hear("the listener");
            let wanted = ConnectParam {
                timeout: 300_000,
                ..near.parameters(near.other(), &[])
            };
            granted(near.try_connect(&party, &wanted));
            failed(near, &party, ConnectionEventKind::TimedOut);
            near.meet("timed out");
        },
        |far| {
            let party = far.party();
            party.receive_into(&[], 0xF1);
            let service = far.listen(&party);
            let cr = far.request(&party, &service);
            far.meet("timed out");
            granted(party.ia.cr_query(cr, CrFields::all()));
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            failed(far, &party, ConnectionEventKind::AcceptCompletionError);
        },
    );
}

/// A caller can give up; the late accept fails, and another attempt of the caller succeeds.
///
/// Spec: CRA-03, EPD-08, E14, E15, E23, ROCE-176
#[test]
fn attempt_can_be_cancelled() {
    two_sides(
        |near| {
            let party = near.party();
            party.receive_into(&[], 0xF1);
            near.begin_connect(&party, near.other(), b"never mind");
            near.hear("the request");
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
            failed(near, &party, ConnectionEventKind::Disconnected);
            near.meet("cancelled");
            near.reset(&party);
            near.connect(&party);
        },
        |far| {
            let party = far.party();
            party.receive_into(&[], 0xF1);
            let service = far.listen(&party);
            let cr = far.request(&party, &service);
            far.tell("the request", &[]);
            far.meet("cancelled");
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            failed(far, &party, ConnectionEventKind::AcceptCompletionError);
            far.unlisten(&party, service);
            far.reset(&party);
            far.accept(&party);
        },
    );
}

/// A reserved service point serves one caller; the next one of the same process finds nobody.
///
/// Spec: RSC-01, RSC-03, RSC-04, E5, E7, ROCE-173
#[test]
fn reserved_service_point_serves_once() {
    two_sides(
        |near| {
            let (party, late) = (near.party(), near.party());
            late.receive_into(&[], 0xF1);
            near.begin_connect(&party, near.other(), &[]);
            near.meet("requested");
            let wanted = near.parameters(near.other(), &[]);
            granted(near.try_connect(&late, &wanted));
            failed(near, &late, ConnectionEventKind::NonPeerRejected);
            near.meet("refused");
            near.established(&party);
            party.send_from(&[party.memory.segment(0, 8)], 2);
            near.net.success(&party, 2);
        },
        |far| {
            let party = far.party();
            party.receive_into(&[party.memory.segment(0, 8)], 1);
            let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
            let qualifier = far.qualifier(far.number);
            granted(party.ia.rsp_create(qualifier, Some(party.ep), requests));
            assert_eq!(party.state(), EndpointState::Reserved);
            far.tell("the listener", &[]);
            let cr = far.net.request(&party.ia, requests);
            assert_eq!(party.state(), EndpointState::PassiveConnectionPending);
            far.meet("requested");
            far.meet("refused");
            far.net.silent(&party.ia, requests);
            granted(party.ia.cr_accept(cr, None, &[]));
            far.established(&party);
            far.net.receive_ends(&party, 1, DtoStatus::Success);
        },
    );
}

/// A duplicate connects to the service point of its model in the other process.
///
/// Spec: EPU-01..03, GEN-10
#[test]
fn duplicate_connects_to_the_same_process() {
    two_sides(
        |near| {
            let model = near.party();
            let twin = Party::in_zone(&model.ia, model.zone, &PartyOptions::default());
            near.begin_connect(&model, near.other(), &[]);
            near.established(&model);
            let quality = near.parameters(near.other(), &[]).quality;
            let now = near.net.bed.now();
            granted(model.ia.ep_dup_connect(
                twin.ep,
                model.ep,
                TIMEOUT_INFINITE,
                b"twin",
                quality,
                now,
            ));
            near.established(&twin);
            for (cookie, party) in [(1, &model), (2, &twin)] {
                near.meet("receive");
                party.send_from(&[], cookie);
                near.net.success(party, cookie);
            }
        },
        |far| {
            let model = far.party();
            let twin = Party::in_zone(&model.ia, model.zone, &PartyOptions::default());
            let service = far.listen(&model);
            for (party, data) in [(&model, &b""[..]), (&twin, b"twin")] {
                let cr = far.request(&model, &service);
                let request = granted(model.ia.cr_query(cr, CrFields::all()));
                equal("private data", &request.private_data, data);
                granted(model.ia.cr_accept(cr, Some(party.ep), &[]));
                far.established(party);
            }
            for (cookie, party) in [(1, &model), (2, &twin)] {
                party.receive_into(&[], cookie);
                far.meet("receive");
                far.net.receive_ends(party, cookie, DtoStatus::Success);
            }
        },
    );
}

/// A request is handed to another service point, and accepted there; the caller does not notice.
///
/// Spec: CRH-01, PSA-01
#[test]
fn request_is_handed_off() {
    two_sides(
        |near| {
            let party = near.party();
            near.begin_connect(&party, near.other(), b"hello");
            near.established(&party);
            near.meet("receive");
            party.send_from(&[], 1);
            near.net.success(&party, 1);
        },
        |far| {
            let party = far.party();
            let service = far.listen(&party);
            let second = granted(party.ia.evd_create(8, None, EvdFlags::CR));
            let flags = PspFlags::Consumer;
            let (target, there) = granted(party.ia.psp_create_any(second, flags));
            let cr = far.request(&party, &service);
            granted(party.ia.cr_handoff(cr, there));
            let event = far.net.event(&party.ia, second);
            let Event::ConnectionRequest {
                service_point, cr, ..
            } = event
            else {
                panic!("{event:?}");
            };
            assert_eq!(service_point, Some(target));
            let request = granted(party.ia.cr_query(cr, CrFields::all()));
            equal("private data", &request.private_data, b"hello");
            granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
            far.established(&party);
            party.receive_into(&[], 1);
            far.meet("receive");
            far.net.receive_ends(&party, 1, DtoStatus::Success);
        },
    );
}

/// The provider brings the endpoint for a request, which the program completes and accepts.
///
/// Spec: PSC-03, CRA-01, E2, E13
#[test]
fn provider_brings_the_endpoint() {
    two_sides(
        |near| {
            let party = near.party();
            near.begin_connect(&party, near.other(), &[]);
            near.established(&party);
            near.meet("receive");
            party.send_from(&[], 1);
            near.net.success(&party, 1);
        },
        |far| {
            let mut party = far.party();
            let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
            let qualifier = far.qualifier(far.number);
            let flags = PspFlags::Provider;
            granted(party.ia.psp_create(qualifier, requests, flags));
            far.tell("the listener", &[]);
            let cr = far.net.request(&party.ia, requests);
            let request = granted(party.ia.cr_query(cr, CrFields::all()));
            let wanted = granted(party.ia.ep_query(party.ep, EpFields::all()));
            party.ep = request.local_ep.expect("an endpoint of the provider");
            assert_eq!(party.state(), EndpointState::TentativeConnectionPending);
            let fields = EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD;
            let fields = fields | EpFields::CONNECT_EVD;
            granted(party.ia.ep_modify(party.ep, fields, &wanted));
            granted(party.ia.cr_accept(cr, None, &[]));
            far.established(&party);
            party.receive_into(&[], 1);
            far.meet("receive");
            far.net.receive_ends(&party, 1, DtoStatus::Success);
        },
    );
}
