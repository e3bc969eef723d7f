//! Two adapters, the threads that call one of them, and the final checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, Wake, Waker};

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::Ia;
use dat_core::error::ErrorKind;
use dat_core::event::{EvdWait, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, EndpointState, EpFields, EvdFields, EvdFlags, MemoryPrivileges,
    PspFlags, SrqFields, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId, RmrId, SrqId};
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};

use super::history::{self, History, Posted, Span, Taken, kind};
use super::script::{self, BUFFERS, IMMEDIATE, MESSAGES, OPERATIONS, Operation, POLLS, THREADS};
use super::turns::Turns;
use crate::consumer::{
    Lock, SHARED, address, attributes, close, connect_to, dispatchers, endpoint, register,
};
use crate::script::argument::{READ, RECEIVE, SEND, SHARED_RECEIVE, WRITE};

const PAGE: usize = 4096;
/// The bytes of a region that one operation uses.
const SEGMENT: u64 = 128;
/// The number of connections.
const PAIRS: usize = 2;
/// The number of regions that all threads use.
const REGIONS: usize = 2;
/// The qualifier of the far adapter's service point.
const QUALIFIER: u64 = 4000;
/// The most rounds until everything is at rest.
const ROUNDS: usize = 2000;
/// The thread number of the posts before the run.
const MAIN: usize = THREADS;

/// The index of the dispatcher of software events.
const SOFTWARE: usize = 3;

static PAGES: [[AtomicU8; PAGE]; 3] = [const { [const { AtomicU8::new(0) }; PAGE] }; 3];

type Adapter<'t> = Ia<'t, MockBackend, Lock>;

dat_core::define_storage! {
    struct Slots for MockBackend, Lock {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 256,
        records: 128,
    }
}

/// Set by a wake-up.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A wait that has not ended.
struct Pending<'a, 't> {
    from: usize,
    begin: u64,
    wait: EvdWait<'a, 't, MockBackend, Lock>,
    woken: Arc<Woken>,
}

/// The objects that the threads share.
struct World<'a, 't> {
    fabric: &'a Fabric,
    ia: &'a Adapter<'t>,
    clock: AtomicU64,
    zone: PzId,
    regions: [LmrCreated; REGIONS],
    dispatchers: [EvdId; 4],
    endpoints: [EpId; PAIRS],
    shared: SrqId,
    window: RmrId,
    /// The memory that the far side grants.
    granted: RmrTriplet,
}

/// The other end of the connections, which the threads do not call.
struct Far<'a, 't> {
    ia: &'a Adapter<'t>,
    memory: LmrCreated,
    endpoints: [EpId; PAIRS],
    dispatchers: [EvdId; 3],
    /// The index of the endpoint that is connected next.
    wanted: usize,
}

/// Runs an input.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let Some(&[seed, setup]) = input.first_chunk() else {
        return;
    };
    let (lists, schedule) = script::decode(input);
    let mut options = if setup & IMMEDIATE != 0 {
        FabricOptions::immediate()
    } else {
        FabricOptions::default()
    };
    options.seed = seed.into();
    options.poll_steps = setup & POLLS != 0;
    let fabric = Fabric::new(options);
    let (mut near, mut far) = (Box::new(Slots::default()), Box::new(Slots::default()));
    let open = |name, number, slots| {
        let backend = fabric.node(NodeOptions::new(name, number));
        Ia::open(backend, slots, 16).expect("an adapter")
    };
    let (near, far) = (open("near", 1, near.lend()), open("far", 2, far.lend()));
    play(&fabric, &near, &far, setup, &lists, schedule);
    close(near);
    close(far);
}

fn play(
    fabric: &Fabric,
    near: &Adapter<'_>,
    far: &Adapter<'_>,
    setup: u8,
    lists: &[Vec<Operation>],
    schedule: &[u8],
) {
    let mut far = Far::new(far);
    let world = World::new(fabric, near, far.granted());
    for pair in 0..PAIRS {
        far.wanted = pair;
        world.connect(pair);
        world.run_to_idle(&far);
        let state = near
            .ep_get_status(world.endpoints[pair])
            .expect("an endpoint")
            .state;
        assert_eq!(state, EndpointState::Connected);
    }
    let mut history = History::default();
    if setup & BUFFERS != 0 {
        for kind in [RECEIVE, RECEIVE, SHARED_RECEIVE, SHARED_RECEIVE] {
            let cookie = world.cookie(MAIN, history.posted.len());
            history.posted.push(world.post(cookie, kind, 0, 0xF0));
        }
    }
    far.begin(setup & MESSAGES != 0);
    let tasks = lists.iter().enumerate().map(|(number, list)| {
        let world = &world;
        move || Caller::new(world, number).call(list)
    });
    let mut waits = Vec::new();
    for (own, wait) in Turns::take(schedule, tasks.collect()) {
        history.add(own);
        waits.extend(wait);
    }
    world.run_to_idle(&far);
    for pending in waits {
        world.end_wait(pending, &mut history, true);
    }
    world.end(&far, history);
    far.end();
}

fn region(ia: &Adapter<'_>, zone: PzId, page: usize) -> LmrCreated {
    let made = register(ia, zone, &PAGES[page], MemoryPrivileges::ALL);
    made.expect("a region")
}

impl<'a, 't> World<'a, 't> {
    fn new(fabric: &'a Fabric, ia: &'a Adapter<'t>, granted: RmrTriplet) -> Self {
        let zone = ia.pz_create().expect("a zone");
        let dispatchers = dispatchers(ia, EvdFlags::SOFTWARE).expect("dispatchers");
        let shared = ia.srq_create(zone, &SHARED).expect("a shared queue");
        let endpoints = [None, Some(shared)].map(|shared| {
            let made = endpoint(ia, zone, dispatchers, shared, &attributes(PAGE as u64));
            made.expect("an endpoint")
        });
        Self {
            fabric,
            ia,
            clock: AtomicU64::new(1),
            zone,
            regions: [0, 1].map(|page| region(ia, zone, page)),
            dispatchers,
            endpoints,
            shared,
            window: ia.rmr_create(zone).expect("a window"),
            granted,
        }
    }

    fn connect(&self, pair: usize) {
        let outcome = self.ia.ep_connect(
            self.endpoints[pair],
            &connect_to(
                NodeOptions::new("", 2).address,
                QUALIFIER,
                TIMEOUT_INFINITE,
                &[],
            ),
            self.fabric.now(),
        );
        outcome.expect("a connection");
    }

    /// Advances both adapters and the fabric until all are at rest.
    fn run_to_idle(&self, far: &Far<'_, '_>) {
        for _ in 0..ROUNDS {
            let now = self.fabric.now();
            // A poll may advance the fabric.
            let rests = self.fabric.next_due().is_none();
            let handled = self.ia.progress(now) + far.ia.progress(now);
            far.accept();
            if !self.fabric.step() && rests && handled == 0 {
                return;
            }
        }
        panic!("it does not become idle");
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn span<T>(&self, call: impl FnOnce() -> T) -> (T, Span) {
        let begin = self.tick();
        let came = call();
        let end = self.tick();
        (came, Span { begin, end })
    }

    fn cookie(&self, number: usize, count: usize) -> u64 {
        (number as u64) << 32 | count as u64
    }

    fn post(&self, cookie: u64, kind: u8, at: u8, how: u8) -> Posted {
        let kind = kind % 6;
        let ep = usize::from(at) % PAIRS;
        let which = usize::from(at >> 4) % REGIONS;
        let length = u64::from(how >> 4) * 8;
        // Each operation has its own bytes.
        let number = (cookie >> 32) * OPERATIONS as u64 + (cookie & 0xFF);
        let segment = LmrTriplet {
            context: self.regions[which].lmr_context,
            address: address(&PAGES[which]) + number * SEGMENT % PAGE as u64,
            length,
        };
        let segments = [segment];
        let to = RmrTriplet {
            length,
            ..self.granted
        };
        let flags = CompletionFlags::from_bits_truncate(u32::from(how & 0xB));
        let receives = matches!(kind, RECEIVE | SHARED_RECEIVE);
        let (ia, endpoint, none) = (self.ia, self.endpoints[ep], CompletionFlags::empty());
        let (outcome, span) = self.span(|| match kind {
            SEND => ia.post_send(endpoint, &segments, cookie, flags),
            WRITE => ia.post_rdma_write(endpoint, &segments, cookie, &to, flags),
            READ => ia.post_rdma_read(endpoint, &segments, cookie, &to, flags),
            RECEIVE => ia.post_recv(endpoint, &segments, cookie, none),
            SHARED_RECEIVE => ia.srq_post_recv(self.shared, &segments, cookie),
            _ => {
                let rights = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
                let bound = ia.rmr_bind(self.window, &segment, rights, endpoint, cookie, flags);
                bound.map(drop)
            }
        });
        Posted {
            cookie,
            span,
            region: (length != 0).then_some(which),
            ep: (kind != SHARED_RECEIVE).then_some(ep),
            silent: !receives && flags.contains(CompletionFlags::SUPPRESS),
            outcome: history::kind(&outcome),
        }
    }

    /// Dequeues all events, or once.
    fn take(&self, history: &mut History, from: usize, all: bool) {
        loop {
            let (ia, evd) = (self.ia, self.dispatchers[from]);
            let (outcome, span) = self.span(|| ia.evd_dequeue(evd));
            let event = match (kind(&outcome), outcome) {
                (Ok(()), outcome) => outcome.ok(),
                (Err(ErrorKind::QueueEmpty), _) => None,
                (Err(ErrorKind::InvalidState), _) => return history.shut_out.push((from, span)),
                (Err(other), _) => panic!("a take is refused: {other:?}"),
            };
            let ended = event.is_none() || !all;
            history.taken.push(Taken { from, span, event });
            if ended {
                return;
            }
        }
    }

    /// Ends a wait; at rest, a ready wait must have been woken.
    fn end_wait(&self, pending: Pending<'_, '_>, history: &mut History, rests: bool) {
        let Pending {
            from,
            begin,
            mut wait,
            woken,
        } = pending;
        let (polled, span) = self.span(|| wait.poll(Waker::noop()));
        if let Poll::Ready(Ok(waited)) = polled {
            assert!(
                !rests || woken.0.load(Ordering::Relaxed),
                "nobody was woken for {waited:?}"
            );
            let event = Some(waited.event);
            history.taken.push(Taken { from, span, event });
        }
        drop(wait);
        let end = self.tick();
        history.waits.push((from, Span { begin, end }));
    }

    /// Ends all connections, checks the history and frees all objects.
    fn end(&self, far: &Far<'_, '_>, mut history: History) {
        for ep in self.endpoints {
            let _anything = self.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        }
        for _ in 0..2 {
            self.run_to_idle(far);
            for from in 0..4 {
                self.take(&mut history, from, true);
            }
        }
        let over = self.endpoints.map(|ep| {
            let status = self.ia.ep_get_status(ep);
            status.expect("an endpoint").state == EndpointState::Disconnected
        });
        history.judge(&over, SOFTWARE);
        let async_evd = self.ia.async_evd();
        while let Ok(event) = self.ia.evd_dequeue(async_evd) {
            let shared_alone =
                matches!(event, Event::Async { handle, .. } if handle == self.shared.handle());
            assert!(shared_alone, "unexpected {event:?}");
        }
        for ep in self.endpoints {
            self.ia.ep_free(ep).expect("an endpoint");
        }
        self.ia.srq_free(self.shared).expect("a shared queue");
        self.ia.rmr_free(self.window).expect("a window");
        for (which, region) in self.regions.iter().enumerate() {
            let freed = self.ia.lmr_free(region.lmr).is_ok();
            let before = history.freed.iter().any(|(of, _)| *of == which);
            assert!(freed != before, "region {which}");
        }
        for evd in self.dispatchers {
            self.ia.evd_free(evd).expect("a dispatcher");
        }
        self.ia.pz_free(self.zone).expect("a zone");
    }
}

/// A thread that performs its list.
struct Caller<'w, 'a, 't> {
    world: &'w World<'a, 't>,
    number: usize,
    history: History,
    wait: Option<Pending<'a, 't>>,
}

impl<'w, 'a, 't> Caller<'w, 'a, 't> {
    fn new(world: &'w World<'a, 't>, number: usize) -> Self {
        Self {
            world,
            number,
            history: History::default(),
            wait: None,
        }
    }

    /// Performs the list; returns the history, and the wait that has not ended.
    fn call(mut self, list: &[Operation]) -> (History, Option<Pending<'a, 't>>) {
        for operation in list {
            self.act(*operation);
        }
        (self.history, self.wait)
    }

    fn act(&mut self, operation: Operation) {
        let world = self.world;
        let ia = world.ia;
        match operation {
            Operation::Nothing => {}
            Operation::Post { kind, at, how } => {
                let cookie = world.cookie(self.number, self.history.posted.len());
                let posted = world.post(cookie, kind, at, how);
                self.history.posted.push(posted);
            }
            Operation::Take { from } => {
                world.take(&mut self.history, usize::from(from) % 4, false);
            }
            Operation::Wait { from, threshold } => self.wait(usize::from(from) % 4, threshold),
            Operation::EndWait => {
                if let Some(pending) = self.wait.take() {
                    world.end_wait(pending, &mut self.history, false);
                }
            }
            Operation::Progress => {
                ia.progress(world.fabric.now());
            }
            Operation::Step { count } => {
                for _ in 0..count % 8 {
                    world.fabric.step();
                }
            }
            Operation::FreeRegion { which } => {
                let which = usize::from(which) % REGIONS;
                let (freed, span) = world.span(|| ia.lmr_free(world.regions[which].lmr));
                if kind(&freed).is_ok() {
                    self.history.freed.push((which, span));
                }
            }
            Operation::Notify => {
                let pointer = world.cookie(self.number, self.history.notified.len());
                let (queued, span) =
                    world.span(|| ia.evd_post_se(world.dispatchers[SOFTWARE], pointer));
                queued.expect("there is room for all");
                self.history.notified.push((pointer, span));
            }
            Operation::Disconnect { at, gracefully } => {
                let flags = [CloseFlags::Abrupt, CloseFlags::Graceful];
                let flags = flags[usize::from(gracefully & 1)];
                let _known =
                    kind(&ia.ep_disconnect(world.endpoints[usize::from(at) % PAIRS], flags));
            }
            Operation::Reset { at } => {
                let at = usize::from(at) % PAIRS;
                if kind(&ia.ep_reset(world.endpoints[at])).is_ok() {
                    self.history.reset.push(at);
                }
            }
            Operation::Make { kind, size } => self.make(kind, size),
            Operation::Ask { kind, which } => self.ask(kind, usize::from(which)),
        }
    }

    fn wait(&mut self, from: usize, threshold: u8) {
        if self.wait.is_some() {
            return;
        }
        let world = self.world;
        let evd = world.dispatchers[from];
        let threshold = i32::from(threshold % 3) + 1;
        let (begun, span) = world.span(|| world.ia.evd_wait(evd, threshold));
        let mut wait = match (kind(&begun), begun) {
            (Ok(()), Ok(wait)) => wait,
            (Err(ErrorKind::InvalidState), _) => {
                return self.history.shut_out.push((from, span));
            }
            (other, _) => panic!("a wait is refused: {other:?}"),
        };
        let woken = Arc::new(Woken::default());
        let (polled, look) = world.span(|| wait.poll(&Waker::from(Arc::clone(&woken))));
        match polled {
            Poll::Pending => {
                self.wait = Some(Pending {
                    from,
                    begin: span.begin,
                    wait,
                    woken,
                });
            }
            Poll::Ready(waited) => {
                let event = waited.expect("an event").event;
                self.history.taken.push(Taken {
                    from,
                    span: look,
                    event: Some(event),
                });
                drop(wait);
                let (begin, end) = (span.begin, world.tick());
                self.history.waits.push((from, Span { begin, end }));
            }
        }
    }

    /// Creates and frees an object; there is not always room for it.
    fn make(&mut self, what: u8, size: u8) {
        let world = self.world;
        let ia = world.ia;
        let freed = match what % 7 {
            0 => ia
                .evd_create(i32::from(size % 32) + 1, None, EvdFlags::DTO)
                .map(|evd| ia.evd_free(evd)),
            1 => ia.pz_create().map(|zone| ia.pz_free(zone)),
            2 => {
                let [receives, requests, connections, _] = world.dispatchers.map(Some);
                ia.ep_create(Some(world.zone), receives, requests, connections, None)
                    .map(|ep| ia.ep_free(ep))
            }
            3 => register(ia, world.zone, &PAGES[0], MemoryPrivileges::LOCAL_READ)
                .map(|made| ia.lmr_free(made.lmr)),
            4 => ia
                .evd_resize(
                    world.dispatchers[usize::from(size >> 7)],
                    64 + i32::from(size % 64),
                )
                .map(Ok),
            5 => ia.srq_set_lw(world.shared, i32::from(size % 4)).map(Ok),
            _ => ia.rmr_create(world.zone).map(|window| ia.rmr_free(window)),
        };
        if kind(&freed).is_ok() {
            freed.expect("an object").expect("it is freed");
        }
    }

    fn ask(&self, what: u8, which: usize) {
        let (world, ia) = (self.world, self.world.ia);
        match what % 5 {
            0 => {
                let status = ia.ep_get_status(world.endpoints[which % PAIRS]);
                status.expect("an endpoint");
            }
            1 => {
                let outcome = ia.ep_query(world.endpoints[which % PAIRS], EpFields::all());
                outcome.expect("an endpoint");
            }
            2 => {
                let outcome = ia.evd_query(world.dispatchers[which % 4], EvdFields::all());
                outcome.expect("a dispatcher");
            }
            3 => {
                let outcome = ia.srq_query(world.shared, SrqFields::all());
                outcome.expect("a shared queue");
            }
            _ => {
                let _quiet = ia.is_quiet();
            }
        }
    }
}

impl<'a, 't> Far<'a, 't> {
    fn new(ia: &'a Adapter<'t>) -> Self {
        let zone = ia.pz_create().expect("a zone");
        let dispatcher = |flags| ia.evd_create(64, None, flags).expect("a dispatcher");
        let dispatchers = [
            dispatcher(EvdFlags::DTO),
            dispatcher(EvdFlags::CONNECTION),
            dispatcher(EvdFlags::CR),
        ];
        let [transfers, connections, arrivals] = dispatchers;
        ia.psp_create(QUALIFIER, arrivals, PspFlags::Consumer)
            .expect("a service point");
        let endpoints = [0, 1].map(|_| {
            let each = [transfers, transfers, connections, arrivals];
            let made = endpoint(ia, zone, each, None, &attributes(PAGE as u64));
            made.expect("an endpoint")
        });
        Self {
            ia,
            memory: region(ia, zone, 2),
            endpoints,
            dispatchers,
            wanted: 0,
        }
    }

    fn granted(&self) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: address(&PAGES[2]),
            length: SEGMENT,
        }
    }

    fn accept(&self) {
        while let Ok(event) = self.ia.evd_dequeue(self.dispatchers[2]) {
            let Event::ConnectionRequest { cr, .. } = event else {
                panic!("unexpected {event:?}");
            };
            let accepted = self
                .ia
                .cr_accept(cr, Some(self.endpoints[self.wanted]), &[]);
            accepted.expect("a connection");
        }
    }

    /// Posts buffers, and messages if `messages` is set.
    fn begin(&self, messages: bool) {
        let segment = [LmrTriplet {
            context: self.memory.lmr_context,
            address: address(&PAGES[2]),
            length: SEGMENT,
        }];
        for ep in self.endpoints {
            for cookie in 0..8 {
                let posted = self
                    .ia
                    .post_recv(ep, &segment, cookie, CompletionFlags::empty());
                posted.expect("room for a buffer");
            }
            for cookie in 0..if messages { 2 } else { 0 } {
                let message = LmrTriplet {
                    length: 8,
                    ..segment[0]
                };
                let posted = self
                    .ia
                    .post_send(ep, &[message], cookie, CompletionFlags::empty());
                posted.expect("room for a message");
            }
        }
    }

    /// Checks that the calls of the threads caused no asynchronous event on this side.
    fn end(&self) {
        let async_evd = self.ia.async_evd();
        let outcome = self.ia.evd_dequeue(async_evd);
        assert!(outcome.is_err(), "unexpected {outcome:?}");
    }
}
