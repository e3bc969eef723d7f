//! Calls and packets while the heap is exhausted: nothing ends the process.
#![cfg(feature = "udp")]
#![expect(unsafe_code, reason = "an allocator that fails on request")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use backend_roce::PathChoice;
use common::end::{End, QUALIFIER, SLOT};
use dat_core::endpoint::ConnectParam;
use dat_core::error::{Error, ErrorKind};
use dat_core::event::{Event, ThreadWait};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EndpointState, PspFlags, QualityOfService,
};
use dat_core::id::CrId;
use dat_core::memory::LmrTriplet;
use dat_core::time::Instant;

/// Allocations that still succeed.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Set if freed blocks can be allocated again.
static GIVES_BACK: AtomicBool = AtomicBool::new(false);

/// Held by each test, since all share the heap.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Scarce;

// SAFETY: passes calls on to the system's allocator, or refuses them.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if LEFT.fetch_sub(1, Ordering::Relaxed) <= 0 {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; the memory is the system's.
        unsafe { System.dealloc(memory, layout) }
        if GIVES_BACK.load(Ordering::Relaxed) {
            LEFT.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[global_allocator]
static HEAP: Scarce = Scarce;

/// Rounds without memory: virtual time in which requests and messages are repeated.
const SCARCE_ROUNDS: u32 = 40;
const ROUNDS_MAX: u32 = 4_000;

/// Two ends that connect, move data and disconnect, again and again.
struct Pair {
    left: End,
    right: End,
    now: Instant,
    request: Option<CrId>,
    posted: u32,
    completed: u32,
    /// Connections that have moved all data.
    cycles: u32,
}

fn state(end: &End) -> EndpointState {
    end.ia.ep_get_status(end.ep).expect("a status").state
}

/// Returns what a call made; only lack of memory may refuse it.
fn made<T>(outcome: Result<T, Error>) -> Option<T> {
    let refused = outcome.as_ref().err().map(|error| error.kind());
    assert!(
        matches!(refused, None | Some(ErrorKind::InsufficientResources)),
        "{refused:?}"
    );
    outcome.ok()
}

fn made_it(outcome: Result<(), Error>) -> bool {
    made(outcome).is_some()
}

impl Pair {
    /// Opens two ends at addresses from `number` on, which connect on one way.
    fn open(number: u8, path: PathChoice) -> Self {
        let open = |number| End::open_on(number, true, "", path);
        let (left, right) = (open(number), open(number + 1));
        let point = right
            .ia
            .psp_create(QUALIFIER, right.evd, PspFlags::Consumer);
        point.expect("a service point");
        Self {
            left,
            right,
            now: ThreadWait::clock(),
            request: None,
            posted: 0,
            completed: 0,
            cycles: 0,
        }
    }

    fn look(&mut self) {
        for end in [&self.left, &self.right] {
            while let Some(event) = end.look_at(self.now) {
                match event {
                    Event::ConnectionRequest { cr, .. } => self.request = Some(cr),
                    Event::Dto(done) => {
                        self.completed += u32::from(done.status == DtoStatus::Success);
                    }
                    Event::Connection { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn connect(&self) {
        let param = ConnectParam {
            address: self.right.address,
            qualifier: QUALIFIER,
            timeout: u32::MAX,
            private_data: b"scarce",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        made_it(self.left.ia.ep_connect(self.left.ep, &param, self.now));
    }

    /// Returns segments of memory: more than fit without the heap.
    fn segments(end: &End) -> [LmrTriplet; 3] {
        [1, 2, 3].map(|slot| end.local(slot, SLOT / 4)[0])
    }

    fn transfer(&mut self) {
        let none = CompletionFlags::empty();
        let (left, right) = (&self.left, &self.right);
        let (from, to) = (Self::segments(left), Self::segments(right));
        let remote = right.remote(9, SLOT / 4 * 3);
        let cookie = u64::from(self.posted);
        let done = match self.posted {
            0 => right.ia.post_recv(right.ep, &to, cookie, none),
            1 => left.ia.post_send(left.ep, &from, cookie, none),
            2 => left
                .ia
                .post_rdma_write(left.ep, &from, cookie, &remote, none),
            3 => left
                .ia
                .post_rdma_read(left.ep, &from, cookie, &remote, none),
            _ if self.completed == 4 => {
                let ended = left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt);
                ended.expect("an end");
                self.cycles += 1;
                return;
            }
            _ => return,
        };
        self.posted += u32::from(made_it(done));
    }

    /// Makes other objects, as far as there is memory.
    fn make_others(&self) {
        let (ia, evd) = (&self.right.ia, self.right.evd);
        let free = "an object is freed without memory";
        if let Some(psp) = made(ia.psp_create(QUALIFIER + 1, evd, PspFlags::Consumer)) {
            ia.psp_free(psp).expect(free);
        }
        if let Some(pz) = made(ia.pz_create()) {
            if let Some(rmr) = made(ia.rmr_create(pz)) {
                ia.rmr_free(rmr).expect(free);
            }
            if let Some(ep) = made(ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)) {
                ia.ep_free(ep).expect(free);
            }
            ia.pz_free(pz).expect(free);
        }
    }

    fn round(&mut self) {
        self.now = Instant::from_micros(self.now.as_micros() + 100_000);
        self.look();
        let (left, right) = (state(&self.left), state(&self.right));
        for (state, end) in [(left, &self.left), (right, &self.right)] {
            if state == EndpointState::Disconnected {
                end.ia.ep_reset(end.ep).expect("a reset");
                (self.posted, self.completed) = (0, 0);
            }
        }
        match (left, right, self.request) {
            (_, EndpointState::Unconnected, Some(cr))
                if made_it(self.right.ia.cr_accept(cr, Some(self.right.ep), &[])) =>
            {
                self.request = None;
            }
            (EndpointState::Unconnected, EndpointState::Unconnected, None) => self.connect(),
            (EndpointState::Connected, EndpointState::Connected, None) => self.transfer(),
            _ => {}
        }
    }
}

/// Every allocation from the nth on fails for a while, for all n: calls succeed or are refused, and
/// all goes on once there is memory.
///
/// Spec: ROCE-199
#[test]
fn nothing_ends_the_process_while_the_heap_is_exhausted() {
    exhaust_the_heap(|| Pair::open(0, PathChoice::Packets), false);
}

/// As above, for connections through queues in memory, once the adapters have a pair of them.
///
/// Spec: ROCE-199
#[test]
fn nothing_ends_the_process_of_queues_while_the_heap_is_exhausted() {
    let connected = || {
        let mut pair = Pair::open(2, PathChoice::Any);
        while pair.cycles == 0 {
            pair.round();
        }
        assert_eq!(pair.left.driver.counts().local.pairs, 1);
        pair
    };
    exhaust_the_heap(connected, false);
}

/// As above, while the adapters make the pair, or send packets without memory for it.
///
/// Freed blocks can be allocated again: a pair of queues needs one that was asked for before.
///
/// Spec: ROCE-199, ROCE-230
#[test]
fn no_set_up_ends_the_process_while_the_heap_is_exhausted() {
    exhaust_the_heap(|| Pair::open(6, PathChoice::Any), true);
}

fn exhaust_the_heap(open: impl Fn() -> Pair, gives_back: bool) {
    let _alone = alone();
    for allocations in 0.. {
        let mut pair = open();
        let before = REFUSED.load(Ordering::Relaxed);
        LEFT.store(allocations, Ordering::Relaxed);
        GIVES_BACK.store(gives_back, Ordering::Relaxed);
        pair.make_others();
        for _ in 0..SCARCE_ROUNDS {
            pair.round();
        }
        GIVES_BACK.store(false, Ordering::Relaxed);
        LEFT.store(i64::MAX, Ordering::Relaxed);
        let refused = REFUSED.load(Ordering::Relaxed) - before;
        let cycles = pair.cycles + 2;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{allocations} allocations");
            if pair.cycles >= cycles {
                break;
            }
            pair.round();
        }
        if refused == 0 {
            println!("{allocations} allocations");
            return;
        }
    }
}

/// A connection that has all its objects moves data, ends and begins again without memory, but for
/// calls that are refused.
///
/// Spec: ROCE-199
#[test]
fn a_connection_moves_data_while_the_heap_is_exhausted() {
    let _alone = alone();
    let mut pair = Pair::open(4, PathChoice::Packets);
    while pair.cycles < 1 || state(&pair.right) != EndpointState::Connected {
        pair.round();
    }
    // One segment needs no memory, and lists of posts have room since the first ones.
    LEFT.store(0, Ordering::Relaxed);
    let before = REFUSED.load(Ordering::Relaxed);
    let none = CompletionFlags::empty();
    let (left, right) = (&pair.left, &pair.right);
    for cookie in 0..1_000 {
        let (from, to) = (left.local(0, SLOT), right.local(1, SLOT));
        let received = right.ia.post_recv(right.ep, &to, cookie, none);
        received.expect("a receive");
        let sent = left.ia.post_send(left.ep, &from, cookie, none);
        sent.expect("a send");
        let mut completed = 0;
        while completed < 2 {
            for end in [left, right] {
                completed += u32::from(matches!(end.look_at(pair.now), Some(Event::Dto(_))));
            }
        }
    }
    let refused = REFUSED.load(Ordering::Relaxed) - before;
    LEFT.store(i64::MAX, Ordering::Relaxed);
    assert_eq!(refused, 0);
}
