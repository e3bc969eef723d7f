//! Interrupt handlers at each release of a lock in each call.
//!
//! The lock is one that interrupts: after the release that ends the outermost section it runs a
//! handler. Each call is made once for each of its releases.

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

use crate::adapter::Ia;
use crate::attributes::SrqAttributes;
use crate::backend::{ControlEvent, PrivateData, QueuePairKey, RequestKey};
use crate::endpoint::ConnectParam;
use crate::error::{Cause, Error, ErrorKind, Result};
use crate::event::Event;
use crate::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EndpointState, EpFields, EvdFields,
    EvdFlags, MemoryPrivileges, PspFlags, QualityOfService, SrqFields, TIMEOUT_INFINITE,
};
use crate::id::{CnoId, CrId, EpId, EvdId, LmrId, PspId, PzId, RmrId, SrqId};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::sync::{ContextLock, NoLock, RawLock, SplitLock};
use crate::testing::TestBackend;
use crate::testing::fixture::{PEER, SMALL};
use crate::time::Instant;

type Handler = Box<dyn FnMut()>;

std::thread_local! {
    static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
    /// Sections that the current context is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Releases since the call began, and the one that the handler interrupts.
    static RELEASES: Cell<u32> = const { Cell::new(0) };
    static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// Runs the handler if the release that just ended is the chosen one.
fn released() {
    if DEPTH.get() != 0 {
        return;
    }
    RELEASES.set(RELEASES.get() + 1);
    if RELEASES.get() == CHOSEN.get() {
        // Taken: nothing interrupts the handler.
        let handler = HANDLER.take();
        if let Some(mut handler) = handler {
            handler();
        }
    }
}

/// A lock whose release runs the handler. `MASKS`: not while an outer section lasts.
struct Interrupting<L, const MASKS: bool>(L);

#[expect(unsafe_code)]
// SAFETY: every call goes to the lock inside.
unsafe impl<L: RawLock, const MASKS: bool> RawLock for Interrupting<L, MASKS> {
    const INIT: Self = Self(L::INIT);

    type Control = Self;

    type State<'a>
        = L::State<'a>
    where
        Self: 'a;

    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: promised by the caller.
        let state = unsafe { self.0.acquire() };
        DEPTH.set(DEPTH.get() + u32::from(MASKS));
        state
    }

    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        // SAFETY: promised by the caller.
        let state = unsafe { self.0.try_acquire() }?;
        DEPTH.set(DEPTH.get() + u32::from(MASKS));
        released();
        Some(state)
    }

    unsafe fn release(&self, state: Self::State<'_>) {
        // SAFETY: promised by the caller.
        unsafe { self.0.release(state) };
        DEPTH.set(DEPTH.get() - u32::from(MASKS));
        released();
    }
}

type Lock = SplitLock<Interrupting<NoLock, true>, Interrupting<ContextLock, false>>;
type TestIa = Ia<'static, TestBackend, Lock>;

crate::define_storage! {
    struct Slots for TestBackend, Lock {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: 8,
        notification_objects: 2,
        endpoints: 6,
        shared_receive_queues: 2,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 256,
    }
}

/// An adapter with two connected endpoints, one to connect, and objects of each kind.
struct Bed {
    ia: TestIa,
    device: TestBackend,
    pz: PzId,
    cno: CnoId,
    /// Dispatcher of transfers, shared by all endpoints.
    data: EvdId,
    connections: EvdId,
    software: EvdId,
    /// Endpoint of the calls, connected.
    ep: EpId,
    /// Connected; no call touches it.
    other: EpId,
    fresh: EpId,
    lmr: LmrId,
    segment: LmrTriplet,
    rmr: RmrId,
    srq: SrqId,
    /// Uses the shared queue.
    sharing: EpId,
    psp: PspId,
    cr: CrId,
}

const SIZES: SrqAttributes = SrqAttributes {
    max_recv_dtos: 4,
    max_recv_iov: 1,
    low_watermark: 0,
};
const NOTHING: CompletionFlags = CompletionFlags::empty();
const COOKIE: u64 = 1;

impl Bed {
    fn new() -> Self {
        let device = TestBackend::default();
        let storage: &'static mut Slots = Box::leak(Box::new(Slots::new()));
        let ia: TestIa = Ia::open(device.clone(), storage.lend(), 4).unwrap();
        let pz = ia.pz_create().unwrap();
        let cno = ia.cno_create(None).unwrap();
        let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let data = ia.evd_create(16, Some(cno), transfers).unwrap();
        let both = EvdFlags::CONNECTION | EvdFlags::CR;
        let connections = ia.evd_create(16, None, both).unwrap();
        let software = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
        let endpoint = || {
            let (data, connections) = (Some(data), Some(connections));
            ia.ep_create(Some(pz), data, data, connections, Some(&SMALL))
                .unwrap()
        };
        let (ep, other, fresh) = (endpoint(), endpoint(), endpoint());
        let made = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
                pz,
                privileges: MemoryPrivileges::ALL,
            })
            .unwrap();
        let segment = LmrTriplet {
            context: made.lmr_context,
            address: made.registered_address,
            length: 8,
        };
        let rmr = ia.rmr_create(pz).unwrap();
        let srq = ia.srq_create(pz, &SIZES).unwrap();
        let (on, by) = (Some(data), Some(connections));
        let sharing = ia
            .ep_create_with_srq(Some(pz), on, on, by, srq, &SMALL)
            .unwrap();
        let psp = ia.psp_create(7, connections, PspFlags::Consumer).unwrap();
        let listener = psp.handle().to_raw();
        let request = |number| ControlEvent::ConnectionRequest {
            listener,
            request: RequestKey(number),
            remote: PEER,
            remote_port: 1,
            local: PEER,
            private_data: PrivateData::new(),
        };
        device.push_control(request(1));
        ia.progress(Instant::ZERO);
        let Ok(Event::ConnectionRequest { cr, .. }) = ia.evd_dequeue(connections) else {
            panic!("no request");
        };
        for ep in [ep, other] {
            ia.ep_connect(ep, &peer(), Instant::ZERO).unwrap();
            device.push_control(ControlEvent::Established {
                queue_pair: ep.handle().to_raw(),
                private_data: PrivateData::new(),
            });
            ia.progress(Instant::ZERO);
            ia.evd_dequeue(connections).unwrap();
        }
        ia.take_interrupts();
        Self {
            ia,
            device,
            pz,
            cno,
            data,
            connections,
            software,
            ep,
            other,
            fresh,
            lmr: made.lmr,
            segment,
            rmr,
            srq,
            sharing,
            psp,
            cr,
        }
    }

    fn pair(&self, ep: EpId) -> Option<QueuePairKey> {
        self.device.pair(ep.handle().to_raw())
    }

    fn wanted(&self, ep: EpId) -> crate::endpoint::EpParam {
        let mut wanted = self.ia.ep_query(ep, EpFields::all()).unwrap();
        wanted.attributes.max_request_dtos = 6;
        wanted
    }
}

fn peer() -> ConnectParam<'static> {
    ConnectParam {
        address: PEER,
        qualifier: 7,
        timeout: TIMEOUT_INFINITE,
        private_data: b"",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}

/// A call, made on a bed that `Setup` has prepared.
struct Case {
    name: &'static str,
    prepare: fn(&Bed),
    call: fn(&Bed) -> Result<()>,
}

const fn case(name: &'static str, call: fn(&Bed) -> Result<()>) -> Case {
    Case {
        name,
        prepare: |_| (),
        call,
    }
}

fn disconnected(bed: &Bed) {
    bed.ia.ep_disconnect(bed.ep, CloseFlags::Abrupt).unwrap();
    while bed.ia.evd_dequeue(bed.connections).is_ok() {}
}

fn raised(bed: &Bed, event: ControlEvent) {
    bed.device.push_control(event);
}

const CASES: &[Case] = &[
    case("pz_create", |bed| bed.ia.pz_create().map(drop)),
    case("cno_create", |bed| bed.ia.cno_create(None).map(drop)),
    case("cno_free", |bed| bed.ia.cno_free(bed.cno)),
    case("evd_create", |bed| {
        bed.ia.evd_create(8, Some(bed.cno), EvdFlags::DTO).map(drop)
    }),
    case("evd_resize", |bed| bed.ia.evd_resize(bed.data, 40)),
    case("evd_free", |bed| bed.ia.evd_free(bed.software)),
    case("evd_modify_cno", |bed| {
        bed.ia.evd_modify_cno(bed.data, None)
    }),
    case("evd_disable", |bed| bed.ia.evd_disable(bed.data)),
    case("evd_enable", |bed| bed.ia.evd_enable(bed.data)),
    case("evd_query", |bed| {
        bed.ia.evd_query(bed.data, EvdFields::all()).map(drop)
    }),
    case("evd_post_se", |bed| bed.ia.evd_post_se(bed.software, 1)),
    case("evd_dequeue", |bed| {
        bed.ia.evd_dequeue(bed.software).map(drop)
    }),
    case("lmr_create", |bed| {
        let request = LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x2000, 64)),
            pz: bed.pz,
            privileges: MemoryPrivileges::ALL,
        };
        bed.ia.lmr_create(&request).map(drop)
    }),
    case("lmr_free", |bed| bed.ia.lmr_free(bed.lmr)),
    case("rmr_create", |bed| bed.ia.rmr_create(bed.pz).map(drop)),
    case("rmr_free", |bed| bed.ia.rmr_free(bed.rmr)),
    case("rmr_bind", |bed| {
        let opens = MemoryPrivileges::REMOTE_WRITE;
        let (rmr, segment) = (bed.rmr, &bed.segment);
        bed.ia
            .rmr_bind(rmr, segment, opens, bed.ep, 9, NOTHING)
            .map(drop)
    }),
    case("srq_create", |bed| {
        bed.ia.srq_create(bed.pz, &SIZES).map(drop)
    }),
    case("srq_resize", |bed| bed.ia.srq_resize(bed.srq, 8)),
    case("srq_resize shorter", |bed| bed.ia.srq_resize(bed.srq, 2)),
    case("srq_set_lw", |bed| bed.ia.srq_set_lw(bed.srq, 1)),
    case("srq_query", |bed| {
        bed.ia.srq_query(bed.srq, SrqFields::all()).map(drop)
    }),
    case("srq_post_recv", |bed| {
        bed.ia.srq_post_recv(bed.srq, &[bed.segment], 9)
    }),
    Case {
        name: "srq_free",
        prepare: |bed| bed.ia.ep_free(bed.sharing).unwrap(),
        call: |bed| bed.ia.srq_free(bed.srq),
    },
    case("ep_create", |bed| {
        let (data, connections) = (Some(bed.data), Some(bed.connections));
        bed.ia
            .ep_create(Some(bed.pz), data, data, connections, Some(&SMALL))
            .map(drop)
    }),
    case("ep_create_with_srq", |bed| {
        let (data, connections) = (Some(bed.data), Some(bed.connections));
        bed.ia
            .ep_create_with_srq(Some(bed.pz), data, data, connections, bed.srq, &SMALL)
            .map(drop)
    }),
    case("ep_modify", |bed| {
        let wanted = bed.wanted(bed.fresh);
        bed.ia
            .ep_modify(bed.fresh, EpFields::MAX_REQUEST_DTOS, &wanted)
    }),
    case("ep_set_watermark", |bed| {
        bed.ia.ep_set_watermark(bed.ep, 1, 2)
    }),
    case("ep_query", |bed| {
        bed.ia.ep_query(bed.ep, EpFields::all()).map(drop)
    }),
    case("ep_get_status", |bed| {
        bed.ia.ep_get_status(bed.ep).map(drop)
    }),
    case("ep_free", |bed| bed.ia.ep_free(bed.ep)),
    Case {
        name: "ep_reset",
        prepare: disconnected,
        call: |bed| bed.ia.ep_reset(bed.ep),
    },
    case("ep_connect", |bed| {
        bed.ia.ep_connect(bed.fresh, &peer(), Instant::ZERO)
    }),
    case("ep_disconnect", |bed| {
        bed.ia.ep_disconnect(bed.ep, CloseFlags::Abrupt)
    }),
    case("ep_disconnect graceful", |bed| {
        bed.ia.ep_disconnect(bed.ep, CloseFlags::Graceful)
    }),
    case("cr_accept", |bed| {
        bed.ia.cr_accept(bed.cr, Some(bed.fresh), b"")
    }),
    case("cr_reject", |bed| bed.ia.cr_reject(bed.cr, b"")),
    case("psp_create", |bed| {
        bed.ia
            .psp_create(8, bed.connections, PspFlags::Provider)
            .map(drop)
    }),
    case("psp_free", |bed| bed.ia.psp_free(bed.psp)),
    case("rsp_create", |bed| {
        bed.ia
            .rsp_create(9, Some(bed.fresh), bed.connections)
            .map(drop)
    }),
    case("post_send", |bed| {
        bed.ia.post_send(bed.ep, &[bed.segment], 9, NOTHING)
    }),
    case("post_recv", |bed| {
        bed.ia.post_recv(bed.ep, &[bed.segment], 9, NOTHING)
    }),
    Case {
        name: "progress, disconnected",
        prepare: |bed| {
            let queue_pair = bed.ep.handle().to_raw();
            raised(bed, ControlEvent::Disconnected { queue_pair });
        },
        call: |bed| {
            bed.ia.progress(Instant::ZERO);
            Ok(())
        },
    },
    Case {
        name: "progress, completions",
        prepare: |bed| {
            let queue = bed.data.slot().get();
            raised(bed, ControlEvent::Completions { queue });
        },
        call: |bed| {
            bed.ia.progress(Instant::ZERO);
            Ok(())
        },
    },
];

/// What the handler did.
#[derive(Default)]
struct Done {
    /// Accepted sends and receives of `ep`, and of `other`.
    posted: [u32; 2],
    /// Completions of `ep`, and of `other`.
    completed: [u32; 2],
    /// Set if a dequeue found nothing although a completion was there.
    missed: bool,
    refused: Vec<(String, Error)>,
}

impl Done {
    fn post(&mut self, bed: &Bed) {
        for (index, ep) in [bed.ep, bed.other].into_iter().enumerate() {
            let segments = [bed.segment];
            let sent = bed.ia.post_send(ep, &segments, COOKIE, NOTHING);
            let received = bed.ia.post_recv(ep, &segments, COOKIE, NOTHING);
            for (name, result) in [("send", sent), ("receive", received)] {
                match result {
                    Ok(()) => self.posted[index] += 1,
                    Err(error) => self.refused.push((format!("{name} on {index}"), error)),
                }
            }
        }
    }

    fn dequeue(&mut self, bed: &Bed) {
        while let Ok(event) = bed.ia.evd_dequeue(bed.data) {
            if let Event::Dto(completion) = event
                && completion.cookie == COOKIE
            {
                let index = usize::from(completion.ep == bed.other);
                self.completed[index] += 1;
            }
        }
    }
}

/// Refuses an error that the documentation of a handler's calls does not name.
fn is_documented(error: Error) -> bool {
    match (error.kind(), error.cause()) {
        (ErrorKind::InsufficientResources, Cause::Busy | Cause::QueueFull) => true,
        // The call of the case has ended or freed what the handler posts to.
        (ErrorKind::InvalidState, _) => true,
        (ErrorKind::InvalidHandle, Cause::Stale) => true,
        (ErrorKind::PrivilegesViolation, Cause::StaleContext) => true,
        _ => false,
    }
}

/// Makes a call, with a handler at the release `chosen`; returns the number of releases.
fn interrupt(case: &'static Case, chosen: u32) -> u32 {
    let bed = Rc::new(Bed::new());
    let done = Rc::new(RefCell::new(Done::default()));
    // A completion that only the handler's dequeue, or a later one, can find.
    done.borrow_mut().post(&bed);
    (case.prepare)(&bed);
    bed.ia.take_interrupts();
    if let Some(pair) = bed.pair(bed.other) {
        assert!(bed.device.complete_request(pair, DtoStatus::Success));
    }
    let handler = {
        let (bed, done, name) = (bed.clone(), done.clone(), case.name);
        move || {
            let mut done = done.borrow_mut();
            done.post(&bed);
            let before = done.completed[1];
            done.dequeue(&bed);
            done.missed = done.completed[1] == before;
            // A call of the control path is made or refused.
            match bed.ia.pz_create() {
                Ok(pz) => bed.ia.pz_free(pz).unwrap(),
                Err(error) => assert_eq!(error.cause(), Cause::Busy, "{name}"),
            }
        }
    };
    HANDLER.set(Some(Box::new(handler)));
    RELEASES.set(0);
    CHOSEN.set(chosen);
    let outcome = (case.call)(&bed);
    CHOSEN.set(0);
    let releases = RELEASES.get();
    let has_run = HANDLER.take().is_none();
    let context = format!("{} interrupted at {chosen}: {outcome:?}", case.name);
    if chosen == 0 {
        return releases;
    }
    assert!(has_run, "{context}");
    let mut done = done.borrow_mut();
    for (name, error) in &done.refused {
        assert!(is_documented(*error), "{name}: {error:?}; {context}");
    }
    // Whoever found nothing is told.
    if done.missed && done.completed[1] == 0 {
        assert_ne!(bed.ia.take_interrupts(), 0, "{context}");
    }
    // Every post of the endpoint that lives on completes once.
    for ep in [bed.ep, bed.other] {
        let _over = bed.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        if let Some(pair) = bed.pair(ep) {
            bed.device.break_pair(pair);
        }
        for _ in 0..4 {
            bed.ia.progress(Instant::ZERO);
            done.dequeue(&bed);
        }
    }
    assert_eq!(done.completed[1], done.posted[1], "{context}");
    let lives = bed
        .ia
        .ep_get_status(bed.ep)
        .is_ok_and(|status| status.state == EndpointState::Disconnected);
    if lives {
        assert_eq!(done.completed[0], done.posted[0], "{context}");
    } else {
        assert!(done.completed[0] <= done.posted[0], "{context}");
    }
    releases
}

/// A handler may post, dequeue and notify at each release of a lock in each call.
///
/// What it may not do is refused with a documented error. Accepted posts complete once, and whoever
/// found a dispatcher in change is told when it is not any more.
///
/// Spec: DTO-07, EVG-01
#[test]
fn a_handler_interrupts_each_call_at_each_release() {
    let mut pairs = 0;
    for case in CASES {
        let releases = interrupt(case, 0);
        assert_ne!(releases, 0, "{}", case.name);
        for chosen in 1..=releases {
            interrupt(case, chosen);
            pairs += 1;
        }
    }
    std::println!("{} calls, {pairs} interruptions", CASES.len());
    assert!(pairs > 300, "{pairs}");
}

/// A failed completion that a handler dequeues breaks the connection in the next `progress`.
///
/// Spec: DTO-12
#[test]
fn a_failure_that_a_handler_finds_is_left_to_progress() {
    let bed = Bed::new();
    let state = |bed: &Bed| bed.ia.ep_get_status(bed.ep).map(|status| status.state);
    bed.ia
        .post_send(bed.ep, &[bed.segment], COOKIE, NOTHING)
        .unwrap();
    let pair = bed.pair(bed.ep).unwrap();
    assert!(bed.device.complete_request(pair, DtoStatus::BadResponse));
    bed.device.take_calls();
    let Ok(Event::Dto(failed)) = bed.ia.evd_dequeue(bed.data) else {
        panic!("no completion");
    };
    assert_eq!(failed.status, DtoStatus::BadResponse);
    assert_eq!(bed.device.take_calls(), []);
    assert_eq!(bed.ia.take_interrupts(), 1);
    assert!(!bed.ia.is_quiet());
    bed.ia.progress(Instant::ZERO);
    assert_eq!(state(&bed), Ok(EndpointState::Disconnected));
}

/// A control call in a handler is refused while the interrupted context makes one.
#[test]
fn a_control_call_inside_another_is_refused() {
    let bed = Bed::new();
    let refused = bed
        .ia
        .controlled(|_| Ok(bed.ia.pz_create().unwrap_err()))
        .unwrap();
    assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
    assert_eq!(refused.cause(), Cause::Busy);
    bed.ia
        .controlled(|_| {
            assert!(!bed.ia.is_quiet());
            assert_eq!(bed.ia.next_deadline(), Some(Instant::ZERO));
            assert_eq!(bed.ia.progress(Instant::ZERO), 0);
            Ok(())
        })
        .unwrap();
}
