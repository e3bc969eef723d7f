//! Situations that operations on idle adapters do not reach.
//!
//! Events that arrive between two polls, device refusals while work is pending, and objects that
//! end during a wait.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use backend_mock::{Fabric, FabricOptions, Fault, MockBackend, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::error::{Cause, ErrorKind, Subtype};
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, Handle, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::{Error, Ia, Result};

use super::cramped::{Adapter, CheckResult, Failure, Lock, require, require_refused, shared};
use super::{Outcome, Runner};

dat_core::define_storage! {
    struct Slots for MockBackend, Lock {
        protection_zones: 3,
        local_regions: 3,
        remote_regions: 3,
        event_dispatchers: 4,
        notification_objects: 4,
        endpoints: 3,
        shared_receive_queues: 1,
        public_service_points: 3,
        reserved_service_points: 3,
        connection_requests: 3,
        events: 48,
        records: 48,
    }
}

/// Size of a page, more than the copy for short transfers moves.
const PAGE: usize = 4096;

/// Page aligned, as the fastest copy requires.
#[repr(align(4096))]
struct Page([AtomicU8; PAGE]);

thread_local! {
    /// Pages that are never freed, for each thread.
    static PAGES: [&'static [AtomicU8]; 2] = std::array::from_fn(|_| {
        let page: &'static Page = Box::leak(Box::new(Page([const { AtomicU8::new(0) }; PAGE])));
        page.0.as_slice()
    });
}

/// Returns two pages of this thread.
pub(super) fn pages() -> [&'static [AtomicU8]; 2] {
    PAGES.with(|pages| *pages)
}

/// Address of the abandoned adapter, so that leak checkers find it.
///
/// Nothing else reads it; `used` keeps the compiler from removing it.
#[used]
static ABANDONED: AtomicUsize = AtomicUsize::new(0);
/// Result of the check of the abandoned adapter, which every run reports.
static ABANDONED_RESULT: OnceLock<core::result::Result<(), String>> = OnceLock::new();

const MOST_STEPS: usize = 10_000;
const NO_FLAGS: CompletionFlags = CompletionFlags::empty();
const REMOTE: MemoryPrivileges =
    MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);
const QUALIFIER: u64 = 7;
const ATTRIBUTES: EpAttributes = EpAttributes {
    max_message_size: PAGE as u64,
    max_rdma_size: PAGE as u64,
    max_recv_dtos: 4,
    max_request_dtos: 4,
    max_rdma_read_in: 1,
    max_rdma_read_out: 1,
    ..EpAttributes::DEFAULT
};

const TO_PASSIVE: ConnectParam<'_> = ConnectParam {
    address: IaAddress::Node(2),
    qualifier: QUALIFIER,
    timeout: TIMEOUT_INFINITE,
    private_data: &[],
    quality: QualityOfService::BEST_EFFORT,
    flags: ConnectFlags::empty(),
};

/// One end: an adapter with two dispatchers, a page of memory and two endpoints.
///
/// One dispatcher is for connection requests, the other for all other events.
struct End<'i, 's> {
    ia: &'i Adapter<'s>,
    pz: PzId,
    evd: EvdId,
    arrivals: EvdId,
    memory: LmrCreated,
    endpoints: [EpId; 2],
}

impl<'i, 's> End<'i, 's> {
    fn new(ia: &'i Adapter<'s>, page: &'static [AtomicU8]) -> core::result::Result<Self, Failure> {
        let pz = ia.pz_create()?;
        let transfers = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let streams = transfers | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
        let evd = ia.evd_create(16, None, streams)?;
        let arrivals = ia.evd_create(4, None, EvdFlags::CR)?;
        let memory = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(page)),
            pz,
            privileges: MemoryPrivileges::ALL,
        })?;
        let (pz_id, all) = (Some(pz), Some(evd));
        let make = || ia.ep_create(pz_id, all, all, all, Some(&ATTRIBUTES));
        let endpoints = [make()?, make()?];
        Ok(Self {
            ia,
            pz,
            evd,
            arrivals,
            memory,
            endpoints,
        })
    }

    const fn segment(&self, offset: u64, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + offset,
            length,
        }
    }

    const fn remote(&self) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: self.memory.registered_address,
            length: PAGE as u64,
        }
    }

    /// Dequeues an event that must be present.
    fn next(&self) -> core::result::Result<Event, Failure> {
        Ok(self.ia.evd_dequeue(self.evd)?)
    }

    /// Dequeues the successful completion of a cookie.
    #[track_caller]
    fn take(&self, cookie: u64) -> CheckResult {
        let event = self.next()?;
        require(match event {
            Event::Dto(done) => (done.cookie, done.status) == (cookie, DtoStatus::Success),
            Event::RmrBind(done) => (done.cookie, done.status) == (cookie, DtoStatus::Success),
            _ => false,
        })
    }

    #[track_caller]
    fn take_established(&self, ep: EpId) -> CheckResult {
        let established = ConnectionEventKind::Established;
        let event = self.next()?;
        require(
            matches!(event, Event::Connection { kind, ep: of, .. } if kind == established && of == ep),
        )
    }
}

/// The two ends on a fabric.
struct Ends<'i, 's> {
    fabric: &'i Fabric,
    active: End<'i, 's>,
    passive: End<'i, 's>,
}

impl Ends<'_, '_> {
    fn run_to_idle(&self) {
        loop {
            let steps = self.fabric.run_until_idle(MOST_STEPS);
            let now = self.fabric.now();
            if steps + self.active.ia.progress(now) + self.passive.ia.progress(now) == 0 {
                return;
            }
        }
    }

    /// Connects two endpoints; the passive side has not yet dequeued the event.
    fn connect(&self, pair: usize) -> CheckResult {
        let Self {
            fabric,
            active,
            passive,
        } = self;
        let ep = active.endpoints[pair];
        active.ia.ep_connect(ep, &TO_PASSIVE, fabric.now())?;
        self.run_to_idle();
        let Event::ConnectionRequest { cr, .. } = passive.ia.evd_dequeue(passive.arrivals)? else {
            return require(false);
        };
        passive
            .ia
            .cr_accept(cr, Some(passive.endpoints[pair]), &[])?;
        fabric.run_until_idle(MOST_STEPS);
        active.ia.progress(fabric.now());
        active.take_established(ep)
    }
}

impl Runner {
    /// Runs the situations of CNE-03, DTO-13, LMF-02, RMB-23, RMF-02, CNW-05, EVW-10 and IAC-02.
    pub(super) fn interleavings(&mut self) -> Outcome {
        let fabric = Fabric::new(FabricOptions::default());
        let mut stores = [Box::new(Slots::new()), Box::new(Slots::new())];
        let [first, second] = &mut stores;
        let nodes = [("active", 1), ("passive", 2)]
            .map(|(name, number)| fabric.node(NodeOptions::new(name, number)));
        let [a, b] = nodes;
        let (a, b) = match (Ia::open(a, first.lend(), 4), Ia::open(b, second.lend(), 4)) {
            (Ok(a), Ok(b)) => (a, b),
            (a, b) => return self.mismatch("two adapters", [a.err(), b.err()]),
        };
        let found = run_interleavings(&fabric, &a, &b).map_err(Failure::into_text);
        self.expect(
            found.is_ok(),
            "events in their order, and no trace of what was declined",
            found,
        )?;
        self.abandoned_adapter()
    }
}

fn run_interleavings<'s>(fabric: &Fabric, a: &Adapter<'s>, b: &Adapter<'s>) -> CheckResult {
    let [near, far] = pages();
    for (number, cell) in near.iter().enumerate() {
        cell.store((number % 251) as u8, Ordering::Relaxed);
    }
    far.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    let ends = Ends {
        fabric,
        active: End::new(a, near)?,
        passive: End::new(b, far)?,
    };
    let arrivals = ends.passive.arrivals;
    b.psp_create(QUALIFIER, arrivals, PspFlags::Consumer)?;
    established_precedes_messages(&ends)?;
    long_transfers(&ends)?;
    undone_bind_frees_region(&ends.passive, &ends)?;
    refused_binds(&ends)?;
    objects_end_during_waits(&ends)
}

/// Checks that ESTABLISHED precedes a message of its connection if both arrive before a dequeue.
///
/// It follows an earlier event of another endpoint.
fn established_precedes_messages(ends: &Ends<'_, '_>) -> CheckResult {
    let Ends {
        active, passive, ..
    } = ends;
    let receive = |pair: usize, cookie| {
        let ep = passive.endpoints[pair];
        passive
            .ia
            .post_recv(ep, &[passive.segment(0, 8)], cookie, NO_FLAGS)
    };
    let send = |pair: usize| {
        let ep = active.endpoints[pair];
        active
            .ia
            .post_send(ep, &[active.segment(0, 8)], 1, NO_FLAGS)
    };
    ends.connect(0)?;
    ends.run_to_idle();
    passive.take_established(passive.endpoints[0])?;
    receive(0, 10)?;
    receive(1, 11)?;
    send(0)?;
    ends.run_to_idle();
    active.take(1)?;
    ends.connect(1)?;
    send(1)?;
    ends.fabric.run_until_idle(MOST_STEPS);
    // Polls completions, and returns no event.
    passive.ia.evd_resize(passive.evd, 20)?;
    passive.ia.evd_post_se(passive.evd, 99)?;
    ends.run_to_idle();
    passive.take(10)?;
    passive.take_established(passive.endpoints[1])?;
    passive.take(11)?;
    let last = passive.next()?;
    require(last == Event::Software { pointer: 99 })?;
    active.take(1)
}

/// Transfers a whole page by a write, and back by a read.
fn long_transfers(ends: &Ends<'_, '_>) -> CheckResult {
    let Ends {
        active, passive, ..
    } = ends;
    let (ia, ep) = (active.ia, active.endpoints[0]);
    let page = [active.segment(0, PAGE as u64)];
    ia.post_rdma_write(ep, &page, 2, &passive.remote(), NO_FLAGS)?;
    ends.run_to_idle();
    active.take(2)?;
    let [near, far] = pages();
    for (number, (left, right)) in near.iter().zip(far).enumerate() {
        require(right.load(Ordering::Relaxed) == (number % 251) as u8)?;
        left.store(0, Ordering::Relaxed);
    }
    ia.post_rdma_read(ep, &page, 3, &passive.remote(), NO_FLAGS)?;
    ends.run_to_idle();
    active.take(3)?;
    for (left, right) in near.iter().zip(far) {
        require(left.load(Ordering::Relaxed) == right.load(Ordering::Relaxed))?;
    }
    Ok(())
}

/// Frees a region as soon as its last bind is undone, polled or not.
fn undone_bind_frees_region(end: &End<'_, '_>, ends: &Ends<'_, '_>) -> CheckResult {
    let (ia, ep) = (end.ia, end.endpoints[0]);
    let region = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(pages()[1])),
        pz: end.pz,
        privileges: MemoryPrivileges::ALL,
    })?;
    let rmr = ia.rmr_create(end.pz)?;
    let mut segment = LmrTriplet {
        context: region.lmr_context,
        address: region.registered_address,
        length: 64,
    };
    ia.rmr_bind(rmr, &segment, REMOTE, ep, 4, NO_FLAGS)?;
    ends.run_to_idle();
    require_refused(ErrorKind::InvalidState, ia.lmr_free(region.lmr))?;
    segment.length = 0;
    ia.rmr_bind(rmr, &segment, REMOTE, ep, 5, NO_FLAGS)?;
    ends.fabric.run_until_idle(MOST_STEPS);
    ia.lmr_free(region.lmr)?;
    end.take(4)?;
    end.take(5)?;
    Ok(ia.rmr_free(rmr)?)
}

/// Lets the device refuse binds, and checks that nothing holds their region.
///
/// One window has another bind pending, the other has none. Locks that park have one at a time.
fn refused_binds(ends: &Ends<'_, '_>) -> CheckResult {
    let end = &ends.active;
    let (ia, ep) = (end.ia, end.endpoints[0]);
    let region = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(pages()[0])),
        pz: end.pz,
        privileges: MemoryPrivileges::ALL,
    })?;
    let segment = LmrTriplet {
        context: region.lmr_context,
        address: region.registered_address,
        length: 64,
    };
    let (busy, idle) = (ia.rmr_create(end.pz)?, ia.rmr_create(end.pz)?);
    ia.rmr_bind(busy, &end.segment(0, 8), REMOTE, ep, 6, NO_FLAGS)?;
    for nth in 0..500 {
        ends.fabric.inject(Fault::RefusePost { adapter: 0, nth });
    }
    for (rmr, cause) in [
        (busy, Cause::BindsOutstanding),
        (idle, Cause::DeviceRefused),
    ] {
        let refused = ia.rmr_bind(rmr, &segment, REMOTE, ep, 7, NO_FLAGS);
        let why = refused.map_err(|error| (error.kind(), error.cause()));
        require(why == Err((ErrorKind::InsufficientResources, cause)))?;
    }
    ia.lmr_free(region.lmr)?;
    ends.run_to_idle();
    // Only the pending bind completes.
    end.take(6)?;
    require_refused(ErrorKind::QueueEmpty, ia.evd_dequeue(end.evd))?;
    ia.rmr_free(busy)?;
    Ok(ia.rmr_free(idle)?)
}

/// Ends objects while waits for their events are pending.
fn objects_end_during_waits(ends: &Ends<'_, '_>) -> CheckResult {
    let (end, waker) = (&ends.passive, Waker::noop());
    let ia = end.ia;
    let cno = ia.cno_create(None)?;
    let evd = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE)?;
    let mut released = ia.cno_wait(cno)?;
    let forgotten = ia.cno_wait(cno)?;
    require(released.poll(waker).is_pending())?;
    let mut many = ia.evd_wait(evd, 3)?;
    require(many.poll(waker).is_pending())?;
    let shorter = ia.evd_resize(evd, 2).map_err(|error| error.subtype());
    require(shorter == Err(Subtype::InvalidStateEvdWaiter))?;
    drop(many);
    ia.evd_free(evd)?;
    require(released.poll(waker) == Poll::Ready(Ok(None)))?;
    let over = released.poll(waker).map(|outcome| outcome.is_err());
    require(over == Poll::Ready(true))?;
    drop(forgotten);

    // The adapter closes with a bind pending, a completion queued, and two waits for other events.
    let rmr = ia.rmr_create(end.pz)?;
    ia.post_recv(end.endpoints[0], &[end.segment(0, 8)], 20, NO_FLAGS)?;
    let bound = ia.rmr_bind(
        rmr,
        &end.segment(0, 8),
        REMOTE,
        end.endpoints[1],
        21,
        NO_FLAGS,
    );
    require(bound.is_ok())?;
    ends.run_to_idle();
    // Polls completions.
    ia.evd_resize(end.evd, 18)?;
    let again = ia.rmr_bind(
        rmr,
        &end.segment(0, 8),
        REMOTE,
        end.endpoints[1],
        22,
        NO_FLAGS,
    );
    require(again.is_ok())?;
    let software = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE)?;
    let mut event = ia.evd_wait(software, 1)?;
    let mut notification = ia.cno_wait(cno)?;
    require(event.poll(waker).is_pending())?;
    require(notification.poll(waker).is_pending())?;
    require_refused(ErrorKind::InvalidState, ia.shut(CloseFlags::Graceful))?;
    ia.shut(CloseFlags::Abrupt)?;
    for outcome in [
        event.poll(waker).map(Result::err),
        notification.poll(waker).map(Result::err),
    ] {
        let aborted =
            |error: Option<Error>| error.is_some_and(|error| error.kind() == ErrorKind::Abort);
        require(matches!(outcome, Poll::Ready(error) if aborted(error)))?;
    }
    Ok(())
}

impl Runner {
    /// Opens an adapter in storage whose previous adapter was never closed.
    ///
    /// Nothing of that adapter is left.
    ///
    /// Runs once, because the host resources of the previous adapter are never freed.
    ///
    /// Spec: GEN-06, GEN-15
    fn abandoned_adapter(&mut self) -> Outcome {
        let found =
            ABANDONED_RESULT.get_or_init(|| reuse_abandoned_storage().map_err(Failure::into_text));
        self.expect(found.is_ok(), "nothing of the adapter before", found)
    }
}

fn open<'s>(
    fabric: &Fabric,
    number: u64,
    storage: &'s mut Slots,
) -> core::result::Result<Adapter<'s>, Failure> {
    let node = fabric.node(NodeOptions::new("given-up", number));
    Ia::open(node, storage.lend(), 4).map_err(|refused| Failure::Refused(refused.error))
}

fn reuse_abandoned_storage() -> CheckResult {
    let fabric = Fabric::new(FabricOptions::default());
    let (mut first, mut second) = (Box::new(Slots::new()), Box::new(Slots::new()));
    let handles = use_and_abandon(&fabric, &mut first, &mut second)?;
    let ia = open(&fabric, 3, &mut first)?;
    for handle in handles {
        require_refused(ErrorKind::InvalidHandle, ia.get_handle_type(handle))?;
    }
    // All storage is free: events except the asynchronous dispatcher's, records, regions,
    // endpoints.
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(44, None, EvdFlags::SOFTWARE)?;
    let srq = ia.srq_create(pz, &shared(48))?;
    let rmrs = [ia.rmr_create(pz)?, ia.rmr_create(pz)?, ia.rmr_create(pz)?];
    let make = || ia.ep_create(Some(pz), None, None, None, None);
    let endpoints = [make()?, make()?, make()?];
    for ep in endpoints {
        ia.ep_free(ep)?;
    }
    for rmr in rmrs {
        ia.rmr_free(rmr)?;
    }
    ia.srq_free(srq)?;
    ia.evd_free(evd)?;
    ia.pz_free(pz)?;
    let closed = ia.close(CloseFlags::Graceful).map(drop);
    closed.map_err(|refused| Failure::Refused(refused.error))
}

/// Creates one of each object on an adapter, with pending work, and abandons the adapter.
///
/// One connection request is left unanswered. Returns the handles of the objects.
fn use_and_abandon<'s>(
    fabric: &Fabric,
    storage: &'s mut Slots,
    other: &'s mut Slots,
) -> core::result::Result<Vec<Handle>, Failure> {
    let (a, b) = (open(fabric, 1, other)?, open(fabric, 2, storage)?);
    let [near, far] = pages();
    let ends = Ends {
        fabric,
        active: End::new(&a, near)?,
        passive: End::new(&b, far)?,
    };
    let evd = ends.passive.evd;
    let arrivals = ends.passive.arrivals;
    let psp = b.psp_create(QUALIFIER, arrivals, PspFlags::Consumer)?;
    let rsp = b.rsp_create(QUALIFIER + 1, Some(ends.passive.endpoints[1]), arrivals)?;
    ends.connect(0)?;
    ends.run_to_idle();
    let ep = ends.passive.endpoints[0];
    let segment = ends.passive.segment(0, 8);
    b.post_recv(ep, &[segment], 1, NO_FLAGS)?;
    let cno = b.cno_create(None)?;
    b.evd_modify_cno(evd, Some(cno))?;
    let (rmr, srq) = (
        b.rmr_create(ends.passive.pz)?,
        b.srq_create(ends.passive.pz, &shared(2))?,
    );
    b.srq_post_recv(srq, &[segment], 2)?;
    b.rmr_bind(rmr, &segment, REMOTE, ep, 3, NO_FLAGS)?;
    a.ep_connect(ends.active.endpoints[1], &TO_PASSIVE, fabric.now())?;
    ends.run_to_idle();
    b.evd_post_se(evd, 4)?;
    let handles = vec![
        ends.passive.pz.handle(),
        ends.passive.memory.lmr.handle(),
        evd.handle(),
        ep.handle(),
        psp.handle(),
        rsp.handle(),
        cno.handle(),
        rmr.handle(),
        srq.handle(),
    ];
    let kept = Box::leak(Box::new(b));
    ABANDONED.store((&raw const *kept).expose_provenance(), Ordering::Relaxed);
    let closed = a.close(CloseFlags::Abrupt).map(drop);
    closed.map_err(|refused| Failure::Refused(refused.error))?;
    Ok(handles)
}
