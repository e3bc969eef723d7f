//! Every call in every state of an endpoint, by the table of the state machines.

use core::fmt;
use std::rc::Rc;

use dat_core::attributes::EpAttributes;
use dat_core::endpoint::{ConnectParam, EpParam};
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, CrFields, DtoStatus, EndpointState, EpFields,
    EvdFlags, IaFields, MemoryPrivileges, PspFlags, QualityOfService, TIMEOUT_INFINITE,
    WATERMARK_INFINITE,
};
use dat_core::id::{CrId, EvdId};
use dat_core::{Error, Result};

use crate::fixture::errors::{BAD_CR, BAD_EP, EP_NOT_READY};
use crate::fixture::{Adapter, Net, Party, PartyOptions, Testbed, granted, refused};

use EndpointState::{
    ActiveConnectionPending, CompletionPending, Connected, DisconnectPending, Disconnected,
    PassiveConnectionPending, Reserved, TentativeConnectionPending, Unconnected,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// The states, in the order of the table's columns.
const STATES: [EndpointState; 9] = [
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

/// Entry of the table for a call in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    /// Legal.
    Y,
    /// Legal and flushed at once.
    F,
    /// INVALID_STATE.
    N,
    /// Succeeds without effect.
    O,
    /// Abandons the connection attempt.
    A,
    /// Not applicable to the row.
    X,
}
use Law::{A, F, N, O, X, Y};

/// An endpoint in a given state, with other objects that calls need.
struct Stage<T: Testbed> {
    party: Party<T>,
    peer: Party<T>,
    /// The connection request that the endpoint belongs to.
    own: Option<CrId>,
    /// Another connection request, for an accept that names the endpoint.
    other: CrId,
    /// A connected endpoint of the same adapter.
    model: Party<T>,
    /// An unconnected endpoint of the same adapter.
    spare: Party<T>,
    requests: EvdId,
    /// A qualifier of the peer's adapter with a listener.
    target: u64,
}

impl<T: Testbed> fmt::Debug for Stage<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.party.fmt(formatter)
    }
}

impl<T: Testbed> Stage<T> {
    #[track_caller]
    fn new(net: &Net<'_, T>, state: EndpointState) -> Self {
        let options = PartyOptions::default();
        let (near, far) = (net.adapter(), net.adapter());
        let (party, peer) = (Party::new(&near, &options), Party::new(&far, &options));
        let (model, partner) = (Party::new(&near, &options), Party::new(&far, &options));
        net.connect(&model, &partner);
        let requests = granted(near.evd_create(16, None, EvdFlags::CR));
        let caller = Party::new(&far, &options);
        let other = arrival(net, &near, requests, &caller, PspFlags::Consumer);
        let listened = granted(far.evd_create(16, None, EvdFlags::CR));
        let target = net.qualifier();
        granted(far.psp_create(target, listened, PspFlags::Consumer));
        let mut stage = Self {
            spare: Party::in_zone(&near, party.zone, &options),
            party,
            peer,
            own: None,
            other,
            model,
            requests,
            target,
        };
        stage.enter(net, state);
        assert_eq!(stage.party.state(), state);
        stage
    }

    #[track_caller]
    fn enter(&mut self, net: &Net<'_, T>, state: EndpointState) {
        let near = Rc::clone(&self.party.ia);
        match state {
            Unconnected => {}
            Reserved => {
                granted(near.rsp_create(net.qualifier(), Some(self.party.ep), self.requests));
            }
            PassiveConnectionPending => {
                let qualifier = net.qualifier();
                granted(near.rsp_create(qualifier, Some(self.party.ep), self.requests));
                granted(net.try_connect(&self.peer, &near, qualifier, &[]));
                self.own = Some(net.request(&near, self.requests));
            }
            TentativeConnectionPending => {
                let cr = arrival(net, &near, self.requests, &self.peer, PspFlags::Provider);
                self.own = Some(cr);
                let param = granted(near.cr_query(cr, CrFields::all()));
                self.party.ep = param.local_ep.expect("an endpoint of the provider");
            }
            ActiveConnectionPending => granted(self.connect()),
            CompletionPending => {
                let cr = arrival(net, &near, self.requests, &self.peer, PspFlags::Consumer);
                granted(near.cr_accept(cr, Some(self.party.ep), &[]));
            }
            Connected => net.connect(&self.party, &self.peer),
            DisconnectPending => {
                net.connect(&self.party, &self.peer);
                if net.bed.is_stepped() {
                    self.write(0xF1)
                        .expect("a request that keeps the endpoint pending");
                } else {
                    // Without a receive at the peer it neither succeeds nor fails soon.
                    self.party.send_from(&[], 0xF1);
                }
                granted(near.ep_disconnect(self.party.ep, CloseFlags::Graceful));
            }
            Disconnected => {
                net.connect(&self.party, &self.peer);
                net.disconnect(&self.party, &self.peer);
            }
        }
    }

    fn connect(&self) -> Result<()> {
        self.party.ia.ep_connect(
            self.party.ep,
            &ConnectParam {
                address: granted(
                    self.peer
                        .ia
                        .ia_query(dat_core::flags::IaFields::IA_ADDRESS, Default::default()),
                )
                .ia
                .ia_address,
                qualifier: self.target,
                timeout: TIMEOUT_INFINITE,
                private_data: &[],
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            Default::default(),
        )
    }

    fn dup_connect(&self, ep: &Party<T>, model: &Party<T>) -> Result<()> {
        self.party.ia.ep_dup_connect(
            ep.ep,
            model.ep,
            TIMEOUT_INFINITE,
            &[],
            QualityOfService::BEST_EFFORT,
            Default::default(),
        )
    }

    fn write(&self, cookie: u64) -> Result<()> {
        self.party.ia.post_rdma_write(
            self.party.ep,
            &[self.party.memory.segment(0, 8)],
            cookie,
            &self.peer.memory.remote(0, 8),
            DEFAULT,
        )
    }

    fn modify(&self, fields: EpFields, change: impl FnOnce(&mut EpParam)) -> Result<()> {
        let ia = &self.party.ia;
        let mut wanted = granted(ia.ep_query(self.party.ep, EpFields::all()));
        change(&mut wanted);
        ia.ep_modify(self.party.ep, fields, &wanted)
    }
}

/// Awaits a connection request at a new public service point.
#[track_caller]
fn arrival<T: Testbed>(
    net: &Net<'_, T>,
    ia: &Adapter<T>,
    requests: EvdId,
    caller: &Party<T>,
    flags: PspFlags,
) -> CrId {
    let qualifier = net.qualifier();
    granted(ia.psp_create(qualifier, requests, flags));
    granted(net.try_connect(caller, ia, qualifier, &[]));
    net.request(ia, requests)
}

/// A call on a staged endpoint.
type Run<T> = fn(&Stage<T>) -> Result<()>;

/// A change of attributes.
type Change = fn(&mut EpAttributes);

/// Makes a call in every state, by its row of the table.
///
/// A legal call succeeds and leads to the next state. An illegal one is refused with the state's
/// INVALID_STATE and leaves the endpoint as it is. `next` is the state after a legal call, if it
/// changes.
#[track_caller]
fn walk<T: Testbed>(bed: &T, call: &str, law: [Law; 9], next: Option<EndpointState>, run: Run<T>) {
    for (state, law) in STATES.into_iter().zip(law) {
        if law == X {
            continue;
        }
        let net = Net::new(bed);
        let stage = Stage::new(&net, state);
        let before = stage.party.status();
        let outcome = run(&stage);
        let case = format!("{call} in {state:?}");
        match law {
            N => {
                let error = outcome.expect_err(&case);
                assert!(
                    error.same_code(state.forbids()),
                    "{case}: {:?}/{:?}",
                    error.kind(),
                    error.subtype()
                );
                assert_eq!(stage.party.status(), before, "{case}");
            }
            O => {
                outcome.expect(&case);
                assert_eq!(stage.party.status(), before, "{case}");
            }
            Y | F => {
                outcome.expect(&case);
                assert_eq!(stage.party.state(), next.unwrap_or(state), "{case}");
            }
            A => {
                outcome.expect(&case);
                assert_eq!(stage.party.state(), Disconnected, "{case}");
                assert_eq!(
                    net.connection(&stage.party),
                    ConnectionEventKind::Disconnected,
                    "{case}"
                );
                net.quiet(&stage.party);
            }
            X => {}
        }
    }
}

/// Connect, reserve and accept need UNCONNECTED; the model of a dup_connect needs CONNECTED.
///
/// Spec: EPK-01, EPU-02, RSC-02, CRA-01, CRA-05, GEN-06, E3, E6, E10
pub fn connecting_calls_by_state<T: Testbed>(bed: &T) {
    let only_unconnected = [Y, N, N, N, N, N, N, N, N];
    walk(
        bed,
        "ep_connect",
        only_unconnected,
        Some(ActiveConnectionPending),
        Stage::connect,
    );
    walk(
        bed,
        "ep_dup_connect",
        only_unconnected,
        Some(ActiveConnectionPending),
        |stage| stage.dup_connect(&stage.party, &stage.model),
    );
    walk(
        bed,
        "ep_dup_connect as the model",
        [N, N, N, N, N, N, Y, N, N],
        None,
        |stage| stage.dup_connect(&stage.spare, &stage.party),
    );
    walk(
        bed,
        "rsp_create",
        only_unconnected,
        Some(Reserved),
        |stage| {
            let ep = Some(stage.party.ep);
            stage.party.ia.rsp_create(9_999, ep, stage.requests)?;
            Ok(())
        },
    );
    walk(
        bed,
        "cr_accept naming the endpoint",
        only_unconnected,
        Some(CompletionPending),
        |stage| {
            let ep = Some(stage.party.ep);
            stage.party.ia.cr_accept(stage.other, ep, &[])
        },
    );
}

/// Disconnect, reset and free in every state.
///
/// Spec: EPD-02..05, EPD-07, EPD-08, EPR-01, EPR-02, EPF-01, EPF-03, EPU-02, E15, E16, E19, E20,
/// E23..E26, EPD-09
pub fn ending_calls_by_state<T: Testbed>(bed: &T) {
    walk(
        bed,
        "ep_disconnect abrupt",
        [N, N, N, N, A, A, Y, Y, O],
        Some(Disconnected),
        |stage| {
            let ep = stage.party.ep;
            stage.party.ia.ep_disconnect(ep, CloseFlags::Abrupt)
        },
    );
    walk(
        bed,
        "ep_disconnect graceful",
        [N, N, N, N, A, A, X, O, O],
        None,
        |stage| {
            let ep = stage.party.ep;
            stage.party.ia.ep_disconnect(ep, CloseFlags::Graceful)
        },
    );
    walk(
        bed,
        "ep_disconnect graceful with a request under way",
        [X, X, X, X, X, X, Y, X, X],
        Some(DisconnectPending),
        |stage| {
            let ep = stage.party.ep;
            // Without a receive at the peer it neither succeeds nor fails soon.
            stage.party.ia.post_send(ep, &[], 1, DEFAULT)?;
            stage.party.ia.ep_disconnect(ep, CloseFlags::Graceful)
        },
    );
    walk(
        bed,
        "ep_reset",
        [O, N, N, N, N, N, N, N, Y],
        Some(Unconnected),
        |stage| stage.party.ia.ep_reset(stage.party.ep),
    );
    for (state, legal) in STATES
        .into_iter()
        .zip([true, false, false, false, true, true, true, true, true])
    {
        let net = Net::new(bed);
        let stage = Stage::new(&net, state);
        let outcome = stage.party.ia.ep_free(stage.party.ep);
        if legal {
            granted(outcome);
            refused(stage.party.ia.ep_get_status(stage.party.ep), BAD_EP);
        } else {
            refused(outcome, state.forbids());
            assert_eq!(stage.party.state(), state);
        }
    }
}

/// Entries of the table for requests.
const REQUESTS: [Law; 9] = [N, N, N, N, N, N, Y, N, F];

/// Binds are posted in CONNECTED, flushed in DISCONNECTED, refused in all other states.
///
/// Spec: RMB-31, RMB-37, EPD-02, DTO-10, GEN-06
pub fn binds_by_state<T: Testbed>(bed: &T) {
    walk(bed, "rmr_bind", REQUESTS, None, |stage| {
        let party = &stage.party;
        let rmr = granted(party.ia.rmr_create(party.zone));
        let segment = party.memory.segment(0, 8);
        let privileges = MemoryPrivileges::REMOTE_READ;
        let bound = party
            .ia
            .rmr_bind(rmr, &segment, privileges, party.ep, 1, DEFAULT);
        bound.map(drop)
    });
}

/// Requests are posted in CONNECTED, flushed in DISCONNECTED, refused in all other states.
///
/// Spec: EPS-02, EPW-23, EPW-29, EPB-03, EPD-02, DTO-10, GEN-06
pub fn request_posts_by_state<T: Testbed>(bed: &T) {
    let rows: [(&'static str, Run<T>); 3] = [
        ("post_send", |stage| {
            let party = &stage.party;
            party.ia.post_send(party.ep, &[], 1, DEFAULT)
        }),
        ("post_rdma_write", |stage| stage.write(1)),
        ("post_rdma_read", |stage| {
            let party = &stage.party;
            let segment = [party.memory.segment(0, 8)];
            let remote = stage.peer.memory.remote(0, 8);
            party
                .ia
                .post_rdma_read(party.ep, &segment, 1, &remote, DEFAULT)
        }),
    ];
    for (call, run) in rows {
        walk(bed, call, REQUESTS, None, run);
    }
}

/// Receives are posted in every state and stay until a connection.
///
/// In DISCONNECTED they are flushed at once. An endpoint of the provider needs its zone and
/// dispatcher first.
///
/// Spec: EPV-03, DTO-10, EPC-09, EPD-08, EPK-11
pub fn receive_posts_by_state<T: Testbed>(bed: &T) {
    for state in STATES {
        let net = Net::new(bed);
        let stage = Stage::new(&net, state);
        let party = &stage.party;
        let outcome = party
            .ia
            .post_recv(party.ep, &[party.memory.segment(0, 8)], 5, DEFAULT);
        if state == TentativeConnectionPending {
            refused(outcome, EP_NOT_READY);
            continue;
        }
        granted(outcome);
        assert_eq!(party.state(), state);
        match state {
            Disconnected => {
                net.receive_ends(party, 5, DtoStatus::Flushed);
            }
            ActiveConnectionPending | CompletionPending => {
                assert!(!party.status().recv_idle);
                granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
                net.receive_ends(party, 5, DtoStatus::Flushed);
            }
            _ => assert!(!party.status().recv_idle, "{state:?}"),
        }
    }
}

/// Queries and watermarks are legal in every state and do not change it.
///
/// An endpoint names its peer in every state that has one.
///
/// Spec: EPQ-01, EPQ-02, EPG-01, EPY-01, EPH-01
pub fn inspecting_calls_by_state<T: Testbed>(bed: &T) {
    let rows: [(&'static str, Run<T>); 4] = [
        ("ep_query", |stage| {
            let param = stage.party.ia.ep_query(stage.party.ep, EpFields::all())?;
            assert_eq!(param.state, stage.party.state());
            if !matches!(param.state, Unconnected | Reserved | Disconnected) {
                let peer = granted(stage.peer.ia.ia_query(IaFields::all(), Default::default()));
                assert_eq!(param.remote_address, Some(peer.ia.ia_address));
                assert!(param.remote_port.is_some());
            }
            Ok(())
        }),
        ("ep_get_status", |stage| {
            stage.party.ia.ep_get_status(stage.party.ep).map(drop)
        }),
        ("ep_recv_query", |stage| {
            match stage.party.ia.ep_recv_query(stage.party.ep) {
                // Not supported in any state.
                Err(error) if error.same_code(Error::model_not_supported()) => Ok(()),
                param => param.map(drop),
            }
        }),
        ("ep_set_watermark", |stage| {
            let off = WATERMARK_INFINITE;
            stage.party.ia.ep_set_watermark(stage.party.ep, off, off)
        }),
    ];
    for (call, run) in rows {
        walk(bed, call, [Y; 9], None, run);
    }
}

/// Each parameter can be changed only in the states that the table names.
///
/// Spec: EPM-01..03, EPM-05..07
pub fn modifications_by_state<T: Testbed>(bed: &T) {
    walk(
        bed,
        "ep_modify of the zone",
        [Y, N, N, Y, N, N, N, N, N],
        None,
        |stage| {
            let zone = granted(stage.party.ia.pz_create());
            stage.modify(EpFields::PZ, |wanted| wanted.pz = Some(zone))
        },
    );
    let settings: [(&'static str, EpFields, Change); 6] = [
        ("sizes", EpFields::MAX_MESSAGE_SIZE, |wanted| {
            wanted.max_message_size = 4096;
        }),
        ("counts", EpFields::MAX_REQUEST_IOV, |wanted| {
            wanted.max_request_iov = 2;
        }),
        ("receive counts", EpFields::MAX_RECV_IOV, |wanted| {
            wanted.max_recv_iov = 2;
        }),
        ("depths", EpFields::MAX_RDMA_READ_OUT, |wanted| {
            wanted.max_rdma_read_out = 1;
        }),
        ("quality", EpFields::QOS, |_| ()),
        ("service", EpFields::SERVICE_TYPE, |_| ()),
    ];
    for (what, fields, change) in settings {
        for (state, legal) in STATES
            .into_iter()
            .zip([true, true, true, true, false, false, false, false, false])
        {
            let net = Net::new(bed);
            let stage = Stage::new(&net, state);
            let outcome = stage.modify(fields, |wanted| change(&mut wanted.attributes));
            if legal {
                outcome.unwrap_or_else(|error| panic!("{what} in {state:?}: {error}"));
            } else {
                refused(outcome, state.forbids());
            }
            assert_eq!(stage.party.state(), state);
        }
    }
    walk(
        bed,
        "ep_modify of the dispatchers",
        [Y, Y, Y, Y, N, N, N, N, N],
        None,
        |stage| {
            let spare = &stage.spare;
            let fields = EpFields::CONNECT_EVD;
            stage.modify(fields, |wanted| wanted.connect_evd = Some(spare.connect))
        },
    );
    walk(
        bed,
        "ep_modify of provider attributes",
        [Y, N, N, N, N, N, N, N, N],
        None,
        |stage| stage.modify(EpFields::PROVIDER_SPECIFIC_ATTR, |_| ()),
    );
    for state in STATES {
        let net = Net::new(bed);
        let stage = Stage::new(&net, state);
        for field in [
            EpFields::IA,
            EpFields::STATE,
            EpFields::LOCAL_IA_ADDRESS,
            EpFields::LOCAL_PORT,
            EpFields::REMOTE_IA_ADDRESS,
            EpFields::REMOTE_PORT,
            EpFields::SRQ,
        ] {
            for fields in [field, field | EpFields::MAX_MESSAGE_SIZE] {
                refused(stage.modify(fields, |_| ()), Error::invalid_argument(2));
                assert_eq!(stage.party.state(), state);
            }
        }
    }
}

/// The endpoint of a connection request is accepted without a name.
///
/// A rejection returns the endpoint of a reserved service point to the consumer, and frees that of
/// a public one of kind Provider.
///
/// Spec: RSC-04, CRA-01, CRA-04, CRR-01, CRR-02, PSC-03, E2, E7..E9
pub fn endpoints_of_requests_are_accepted_or_rejected<T: Testbed>(bed: &T) {
    for state in [PassiveConnectionPending, TentativeConnectionPending] {
        let net = Net::new(bed);
        let stage = Stage::new(&net, state);
        let (party, cr) = (&stage.party, stage.own.expect("a request"));
        let bad = Error::invalid_argument(2);
        refused(party.ia.cr_accept(cr, Some(stage.spare.ep), &[]), bad);
        refused(party.ia.cr_accept(cr, Some(party.ep), &[]), bad);
        assert_eq!(party.state(), state);
        if state == TentativeConnectionPending {
            refused(party.ia.cr_accept(cr, None, &[]), EP_NOT_READY);
            assert_eq!(party.state(), state);
            let fields =
                EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
            granted(stage.modify(fields, |wanted| {
                wanted.pz = Some(party.zone);
                wanted.recv_evd = Some(party.receive);
                wanted.request_evd = Some(party.request);
                wanted.connect_evd = Some(party.connect);
            }));
            party.receive_into(&[party.memory.segment(0, 8)], 1);
        }
        granted(party.ia.cr_accept(cr, None, &[]));
        assert_eq!(party.state(), CompletionPending);
        refused(party.ia.cr_query(cr, CrFields::all()), BAD_CR);
        net.established(party, &stage.peer);
        net.check_transfer(party, &stage.peer);

        let stage = Stage::new(&net, state);
        let (party, cr) = (&stage.party, stage.own.expect("a request"));
        granted(party.ia.cr_reject(cr, &[]));
        if state == PassiveConnectionPending {
            assert_eq!(party.state(), Unconnected);
            granted(party.ia.ep_free(party.ep));
        } else {
            refused(party.ia.ep_get_status(party.ep), BAD_EP);
        }
        assert_eq!(
            net.connection(&stage.peer),
            ConnectionEventKind::PeerRejected
        );
    }
}

/// The peer's disconnect ends a pending disconnect as DISCONNECTED, a failure as BROKEN.
///
/// The remaining operations are flushed, and one event is raised.
///
/// Spec: E18, E21, E22, EPD-02, EPD-10, DTO-12
pub fn peer_events_end_a_pending_disconnect<T: Testbed>(bed: &T) {
    for breaks in [false, true] {
        let connected = if breaks {
            Net::impatient
        } else {
            Net::connected
        };
        let (net, left, right) = connected(bed);
        left.receive_into(&[], 8);
        // Without a receive at the peer the request does not succeed.
        left.send_from(&[], 1);
        granted(left.ia.ep_disconnect(left.ep, CloseFlags::Graceful));
        assert_eq!(left.state(), DisconnectPending);
        if !breaks {
            granted(right.ia.ep_disconnect(right.ep, CloseFlags::Abrupt));
        }
        let sent = net.request_completion(&left);
        assert_eq!(sent.cookie, 1);
        let (status, kind) = if breaks {
            (DtoStatus::ReceiverNotReady, ConnectionEventKind::Broken)
        } else {
            (DtoStatus::Flushed, ConnectionEventKind::Disconnected)
        };
        assert_eq!(sent.status, status);
        assert_eq!(net.connection(&left), kind);
        assert_eq!(left.state(), Disconnected);
        net.receive_ends(&left, 8, DtoStatus::Flushed);
        assert_eq!(net.connection(&right), kind);
        net.quiet(&left);
        net.quiet(&right);
    }
}

/// An abrupt close of the adapter ends an endpoint in any state.
///
/// Its peer is left neither connected nor pending.
///
/// Spec: E27, IAC-01, IAC-05
pub fn abrupt_close_by_state<T: Testbed>(bed: &T) {
    for state in STATES {
        let net = Net::new(bed);
        let Stage {
            party,
            peer,
            model,
            spare,
            ..
        } = Stage::new(&net, state);
        drop((model, spare));
        let Party { ia, .. } = party;
        assert!(
            net.release(ia).close(CloseFlags::Abrupt).is_ok(),
            "{state:?}"
        );
        net.run_to_idle();
        assert!(
            matches!(peer.state(), Unconnected | Disconnected),
            "the peer of an endpoint in {state:?} is in {:?}",
            peer.state()
        );
    }
}
