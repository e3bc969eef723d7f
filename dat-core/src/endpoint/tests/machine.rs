//! The endpoint state machine: its tables, and the calls that obey them.

use std::vec::Vec;

use crate::endpoint::state::{Call, Legal, Trigger, legal, next};
use crate::error::{ErrorKind, Result, Subtype};
use crate::flags::{
    CloseFlags, CompletionFlags, EndpointState, EpFields, QualityOfService, TIMEOUT_INFINITE,
    WATERMARK_INFINITE,
};
use crate::id::{CrId, EpId};
use crate::testing::TestStorage;
use crate::testing::fixture::{Bench, QUALIFIER, SMALL};
use crate::time::Instant;

use EndpointState::{
    ActiveConnectionPending, CompletionPending, Connected, DisconnectPending, Disconnected,
    PassiveConnectionPending, Reserved, TentativeConnectionPending, Unconnected,
};

/// States in the order of the columns of `PRINTED`.
const COLUMNS: [EndpointState; 9] = [
    Unconnected,
    Reserved,
    PassiveConnectionPending,
    TentativeConnectionPending,
    ActiveConnectionPending,
    CompletionPending,
    Connected,
    DisconnectPending,
    Disconnected,
];

/// Legality of calls per state, as printed in the specification.
///
/// Y legal, F flushed, N INVALID_STATE, 0 no-op, A aborts, - impossible.
const PRINTED: &[(&[Call], &str)] = &[
    (&[Call::Connect], "Y N N N N N N N N"),
    (&[Call::ConnectModel], "N N N N N N Y N N"),
    (&[Call::Reserve], "Y N N N N N N N N"),
    (&[Call::AcceptNamed], "Y N N N N N N N N"),
    (&[Call::AcceptOwn], "- - Y Y - - - - -"),
    (&[Call::DisconnectAbrupt], "N N N N A A Y Y 0"),
    (&[Call::DisconnectGraceful], "N N N N A A Y 0 0"),
    (&[Call::Reset], "0 N N N N N N N Y"),
    (&[Call::Free], "Y N N N Y Y Y Y Y"),
    (&[Call::PostRequest], "N N N N N N Y N F"),
    (&[Call::PostReceive], "Y Y Y Y Y Y Y Y F"),
    (&[Call::Inspect], "Y Y Y Y Y Y Y Y Y"),
    (&[Call::ModifyZone], "Y N N Y N N N N N"),
    (&[Call::ModifySettings], "Y Y Y Y N N N N N"),
    (&[Call::ModifyProvider], "Y N N N N N N N N"),
];

const TRIGGERS: [Trigger; 14] = [
    Trigger::Reserve,
    Trigger::Unreserve,
    Trigger::Request,
    Trigger::Accept,
    Trigger::Reject,
    Trigger::Connect,
    Trigger::Establish,
    Trigger::AttemptFailure,
    Trigger::DisconnectAbruptly,
    Trigger::Drain,
    Trigger::Drained,
    Trigger::PeerDisconnect,
    Trigger::Break,
    Trigger::Reset,
];

/// Returns the state after a trigger, by rows E3 to E23 of the specification.
fn printed(state: EndpointState, trigger: Trigger) -> Option<EndpointState> {
    let connection = matches!(state, Connected | DisconnectPending);
    let attempt = matches!(state, ActiveConnectionPending | CompletionPending);
    let (legal, to) = match trigger {
        Trigger::Reserve => (state == Unconnected, Reserved),
        Trigger::Unreserve => (state == Reserved, Unconnected),
        Trigger::Request => (state == Reserved, PassiveConnectionPending),
        Trigger::Accept => (
            matches!(
                state,
                Unconnected | PassiveConnectionPending | TentativeConnectionPending
            ),
            CompletionPending,
        ),
        Trigger::Reject => (state == PassiveConnectionPending, Unconnected),
        Trigger::Connect => (state == Unconnected, ActiveConnectionPending),
        Trigger::Establish => (attempt, Connected),
        Trigger::AttemptFailure => (attempt, Disconnected),
        Trigger::DisconnectAbruptly => (attempt || connection, Disconnected),
        Trigger::Drain => (state == Connected, DisconnectPending),
        Trigger::Drained => (state == DisconnectPending, Disconnected),
        Trigger::PeerDisconnect | Trigger::Break => (connection, Disconnected),
        Trigger::Reset => (state == Disconnected, Unconnected),
    };
    legal.then_some(to)
}

/// The tables equal those of the specification, for every state, call and trigger.
///
/// Spec: EPK-01, EPU-02, RSC-02, CRA-01, EPD-03, EPD-04, EPD-07, EPD-08, EPR-01, EPR-02, EPF-01,
/// EPS-02, EPV-03, EPW-23, EPM-02, EPM-03, EPM-05, DTO-10
#[test]
fn the_machine_is_the_one_of_the_specification() {
    let mut calls = 0;
    for (row, cells) in PRINTED {
        for &call in *row {
            let cells: Vec<&str> = cells.split(' ').collect();
            assert_eq!(cells.len(), COLUMNS.len());
            for (&state, cell) in COLUMNS.iter().zip(cells) {
                let expected = match cell {
                    "Y" => Legal::Yes,
                    "F" => Legal::Flushed,
                    "0" => Legal::NoOp,
                    "A" => Legal::Aborts,
                    _ => Legal::Invalid,
                };
                assert_eq!(legal(call, state), expected, "{call:?} in {state:?}");
            }
            calls += 1;
        }
    }
    assert_eq!(calls, 15);
    for state in COLUMNS {
        for trigger in TRIGGERS {
            assert_eq!(
                next(state, trigger),
                printed(state, trigger),
                "{trigger:?} in {state:?}"
            );
        }
    }
}

/// Objects that a call needs besides the endpoint.
struct Helpers {
    unconnected: EpId,
    foreign_request: CrId,
    own_request: Option<CrId>,
}

fn perform(bench: &Bench<'_>, call: Call, ep: EpId, helpers: &Helpers) -> Result<()> {
    let ia = &bench.ia;
    let best = QualityOfService::BEST_EFFORT;
    let modify = |fields: EpFields| {
        let param = ia.ep_query(ep, EpFields::all())?;
        ia.ep_modify(
            ep,
            fields,
            &crate::endpoint::EpParam {
                pz: Some(bench.pz),
                ..param
            },
        )
    };
    match call {
        Call::Connect => ia.ep_connect(ep, &bench.param(), Instant::ZERO),
        Call::ConnectModel => ia.ep_dup_connect(
            helpers.unconnected,
            ep,
            TIMEOUT_INFINITE,
            &[],
            best,
            Instant::ZERO,
        ),
        Call::Reserve => ia
            .rsp_create(QUALIFIER + 1, Some(ep), bench.requests)
            .map(|_| ()),
        Call::AcceptNamed => ia.cr_accept(helpers.foreign_request, Some(ep), &[]),
        Call::AcceptOwn => ia.cr_accept(helpers.own_request.unwrap(), None, &[]),
        Call::DisconnectAbrupt => ia.ep_disconnect(ep, CloseFlags::Abrupt),
        Call::DisconnectGraceful => ia.ep_disconnect(ep, CloseFlags::Graceful),
        Call::Reset => ia.ep_reset(ep),
        Call::Free => ia.ep_free(ep),
        Call::PostRequest => ia.post_send(ep, &[], 0, CompletionFlags::empty()),
        Call::PostReceive => ia.post_recv(ep, &[], 0, CompletionFlags::empty()),
        Call::Inspect => {
            ia.ep_query(ep, EpFields::all())?;
            ia.ep_get_status(ep)?;
            ia.ep_set_watermark(ep, WATERMARK_INFINITE, 3)
        }
        Call::ModifyZone => modify(EpFields::PZ),
        Call::ModifySettings => modify(EpFields::MAX_MESSAGE_SIZE | EpFields::CONNECT_EVD),
        Call::ModifyProvider => modify(EpFields::PROVIDER_SPECIFIC_ATTR),
    }
}

/// Every call on an endpoint in every state has the result that the table gives.
///
/// A forbidden call names the state and changes nothing, neither in the core nor at the device.
///
/// Spec: EPK-01, EPU-02, RSC-02, CRA-05, EPD-03, EPD-04, EPD-07, EPD-08, EPR-01, EPR-02, EPF-01,
/// EPS-02, EPV-03, EPM-02, EPM-03, EPM-05, EPH-01, DTO-10, GEN-06
#[test]
fn calls_do_what_the_state_says() {
    for (calls, cells) in PRINTED {
        for (&state, cell) in COLUMNS.iter().zip(cells.split(' ')) {
            if cell == "-" {
                continue;
            }
            for &call in *calls {
                one_call_in_one_state(call, state, cell);
            }
        }
    }
}

fn one_call_in_one_state(call: Call, state: EndpointState, cell: &str) {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let psp = bench.listen(QUALIFIER + 2);
    bench.ask(psp.handle());
    let foreign_request = bench.request_event().unwrap();
    let (ep, own_request) = bench.in_state(state);
    if state == TentativeConnectionPending {
        // The table assumes a complete endpoint; the one of a request has no zone and no
        // dispatchers yet.
        let mut param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        param.pz = Some(bench.pz);
        param.recv_evd = Some(bench.data);
        param.request_evd = Some(bench.data);
        param.connect_evd = Some(bench.connections);
        let fields =
            EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
        bench.ia.ep_modify(ep, fields, &param).unwrap();
    }
    let helpers = Helpers {
        unconnected: bench.endpoint(),
        foreign_request,
        own_request,
    };
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(before.state, state);
    bench.device.take_calls();
    let outcome = perform(&bench, call, ep, &helpers);
    if cell == "N" {
        let error = outcome.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidState,
            "{call:?} in {state:?}"
        );
        assert_eq!(error.subtype(), state.subtype(), "{call:?} in {state:?}");
        assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
        assert_eq!(bench.device.take_calls(), []);
        assert_eq!(bench.connection_events(), []);
        assert!(bench.ia.evd_dequeue(bench.data).is_err() || state == DisconnectPending);
        assert!(
            bench
                .ia
                .cr_query(foreign_request, crate::flags::CrFields::all())
                .is_ok()
        );
        return;
    }
    assert_eq!(outcome, Ok(()), "{call:?} in {state:?}");
    if call == Call::Free {
        let gone = bench.ia.ep_query(ep, EpFields::all()).unwrap_err();
        assert_eq!(gone.subtype(), Subtype::InvalidHandleEp);
        return;
    }
    let after = match (call, cell) {
        (_, "0") => state,
        (_, "A") => Disconnected,
        (Call::Connect, _) => ActiveConnectionPending,
        (Call::Reserve, _) => Reserved,
        (Call::AcceptNamed | Call::AcceptOwn, _) => CompletionPending,
        (Call::DisconnectAbrupt | Call::DisconnectGraceful, _) => Disconnected,
        (Call::Reset, _) => Unconnected,
        _ => state,
    };
    assert_eq!(bench.state(ep), after, "{call:?} in {state:?}");
    if cell == "0" {
        assert_eq!(bench.device.take_calls(), []);
    }
}

/// Fixed and unknown fields are refused in every state.
///
/// Spec: EPM-01, EPM-06, EPM-07, GEN-06, GEN-08
#[test]
fn fixed_fields_stay_in_every_state() {
    for state in COLUMNS {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(state);
        let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        for field in [
            EpFields::IA,
            EpFields::STATE,
            EpFields::LOCAL_IA_ADDRESS,
            EpFields::LOCAL_PORT,
            EpFields::REMOTE_IA_ADDRESS,
            EpFields::REMOTE_PORT,
            EpFields::SRQ,
            EpFields::from_bits_retain(1 << 40),
        ] {
            let refused = bench
                .ia
                .ep_modify(ep, field | EpFields::MAX_RDMA_SIZE, &before)
                .unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidParameter, "{field:?}");
            assert_eq!(refused.subtype(), Subtype::InvalidArg2);
        }
        let mask = EpFields::from_bits_retain(1 << 40);
        let refused = bench.ia.ep_query(ep, mask).unwrap_err();
        assert_eq!(refused.subtype(), Subtype::InvalidArg2);
        assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
        assert_eq!(before.attributes.max_rdma_size, SMALL.max_rdma_size);
    }
}
