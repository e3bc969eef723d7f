//! Adapters with sockets and without a thread: polls move their packets.
#![cfg(feature = "udp")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use backend_roce::{RoceBackend, RoceDriver, RoceOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{Event, ThreadWait};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;
use dat_storage::{Limits, OwnedIa};

const QUALIFIER: u64 = 20_184;
const DEPTH: i32 = 100;
/// Length of the memory of an end; an operation takes a slot of `SLOT` bytes.
const LENGTH: usize = SLOT * DEPTH as usize;
const SLOT: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// One end of a connection.
struct End {
    ia: OwnedIa<RoceBackend, HostLock>,
    address: IaAddress,
    driver: RoceDriver,
    evd: EvdId,
    ep: EpId,
    bytes: &'static [AtomicU8],
    memory: LmrCreated,
}

impl End {
    /// Opens an adapter at an address of the loop-back interface that no other test uses.
    fn open(number: u8, polled: bool) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 48 + number, high, low);
        let mut options = RoceOptions::random().expect("random bytes");
        options.connections = 64;
        options.keys = 256;
        options.polled = polled;
        let address = SocketAddr::new(ip.into(), 0);
        let backend = RoceBackend::open(address, options).expect("an adapter");
        let (address, driver) = (backend.ia_attributes().ia_address, backend.driver());
        let Ok(ia) = OwnedIa::open(backend, &Limits::default(), 16) else {
            panic!("no interface adapter");
        };
        let pz = ia.pz_create().expect("a zone");
        let kinds = EvdFlags::DEFAULT & !EvdFlags::ASYNC;
        let evd = ia.evd_create(4 * DEPTH, None, kinds).expect("a queue");
        let attributes = EpAttributes {
            max_request_dtos: DEPTH,
            max_recv_dtos: DEPTH,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            ..EpAttributes::DEFAULT
        };
        let ep = ia
            .ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attributes))
            .expect("an endpoint");
        let bytes: Vec<AtomicU8> = (0..LENGTH).map(|_| AtomicU8::new(number)).collect();
        let bytes: &'static [AtomicU8] = bytes.leak();
        let memory = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_static(bytes)),
                pz,
                privileges: MemoryPrivileges::ALL,
            })
            .expect("a region");
        Self {
            ia,
            address,
            driver,
            evd,
            ep,
            bytes,
            memory,
        }
    }

    fn local(&self, slot: usize, length: usize) -> [LmrTriplet; 1] {
        [LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + (slot * SLOT) as u64,
            length: length as u64,
        }]
    }

    fn remote(&self, slot: usize, length: usize) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: self.memory.registered_address + (slot * SLOT) as u64,
            length: length as u64,
        }
    }

    /// Takes an event, if there is one, and lets the timers run.
    fn look(&self) -> Option<Event> {
        self.ia.progress(ThreadWait::clock());
        self.ia.evd_dequeue(self.evd).ok()
    }

    fn fill(&self, value: u8) {
        self.bytes
            .iter()
            .for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    fn holds(&self, slots: usize, length: usize, value: u8) -> bool {
        let slots = self.bytes.chunks(SLOT).take(slots);
        let mut bytes = slots.flat_map(|slot| slot.iter().take(length));
        bytes.all(|byte| byte.load(Ordering::Relaxed) == value)
    }
}

/// Polls both ends until `done` returns true for as many events as are wanted.
fn poll_both(ends: [&End; 2], wanted: usize, mut done: impl FnMut(usize, Event) -> bool) {
    let end = Instant::now() + PATIENCE;
    let mut count = 0;
    while count < wanted {
        assert!(Instant::now() < end, "{count} of {wanted} events");
        for (number, one) in ends.into_iter().enumerate() {
            if let Some(event) = one.look() {
                count += usize::from(done(number, event));
            }
        }
    }
}

fn connect(left: &End, right: &End) {
    let point = right
        .ia
        .psp_create(QUALIFIER, right.evd, PspFlags::Consumer);
    point.expect("a service point");
    let param = ConnectParam {
        address: right.address,
        qualifier: QUALIFIER,
        timeout: 20_000_000,
        private_data: b"polled",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    let connected = left.ia.ep_connect(left.ep, &param, ThreadWait::clock());
    connected.expect("an attempt");
    poll_both([left, right], 2, |_, event| match event {
        Event::ConnectionRequest { cr, .. } => {
            let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
            accepted.expect("an acceptance");
            false
        }
        Event::Connection { .. } => true,
        other => panic!("{other:?}"),
    });
}

fn is_success(event: &Event) -> bool {
    matches!(event, Event::Dto(done) if done.status == DtoStatus::Success)
}

/// Moves data both ways: writes and reads, short and long, and messages.
fn exchange(left: &End, right: &End) {
    let none = CompletionFlags::empty();
    for (near, far) in [(left, right), (right, left)] {
        for (value, length) in [(11, 8), (12, 1000), (13, SLOT)] {
            near.fill(value);
            far.fill(0);
            for slot in 0..DEPTH as usize {
                let (local, remote) = (near.local(slot, length), far.remote(slot, length));
                let posted = near
                    .ia
                    .post_rdma_write(near.ep, &local, slot as u64, &remote, none);
                posted.expect("a post");
            }
            let mut next = 0;
            poll_both([near, far], DEPTH as usize, |_, event| {
                let Event::Dto(done) = event else {
                    panic!("{event:?}")
                };
                assert_eq!((done.status, done.cookie), (DtoStatus::Success, next));
                next += 1;
                true
            });
            assert!(far.holds(DEPTH as usize, length, value), "{length}");
        }
        far.fill(14);
        let (local, remote) = (near.local(0, SLOT), far.remote(0, SLOT));
        let posted = near.ia.post_rdma_read(near.ep, &local, 1, &remote, none);
        posted.expect("a post");
        poll_both([near, far], 1, |_, event| is_success(&event));
        assert!(near.holds(1, SLOT, 14));
        let received = far.ia.post_recv(far.ep, &far.local(1, SLOT), 2, none);
        received.expect("a receive");
        let sent = near.ia.post_send(near.ep, &near.local(0, 500), 3, none);
        sent.expect("a post");
        poll_both([near, far], 2, |_, event| is_success(&event));
    }
}

/// Two adapters without threads serve each other on one thread of the program.
#[test]
fn polled_adapters_move_data() {
    let (left, right) = (End::open(0, true), End::open(1, true));
    connect(&left, &right);
    exchange(&left, &right);
    for end in [&left, &right] {
        let counts = end.driver.counts();
        assert_eq!((counts.bad_icrc, counts.dropped), (0, 0), "{counts:?}");
    }
}

/// A polled adapter and one with a thread serve each other.
#[test]
fn a_polled_adapter_meets_one_with_a_thread() {
    let (left, right) = (End::open(2, true), End::open(3, false));
    connect(&left, &right);
    exchange(&left, &right);
}

/// The end of a polled adapter ends its connections.
#[test]
fn the_peer_of_a_polled_adapter_learns_of_its_end() {
    let (left, right) = (End::open(4, true), End::open(5, true));
    connect(&left, &right);
    drop(left);
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "no event");
        if let Some(Event::Connection { .. }) = right.look() {
            return;
        }
    }
}

/// A request of a consumer that takes no completions leaves at once, though some are there.
///
/// Spec: ROCE-185
#[test]
fn a_consumer_that_takes_nothing_is_not_waited_for() {
    let (left, right) = (End::open(8, true), End::open(9, true));
    connect(&left, &right);
    let none = CompletionFlags::empty();
    let post = |cookie| {
        let (local, remote) = (left.local(0, 8), right.remote(0, 8));
        let posted = left
            .ia
            .post_rdma_write(left.ep, &local, cookie, &remote, none);
        posted.expect("a post");
    };
    let end = Instant::now() + PATIENCE;
    for cookie in 0..5 {
        let sent = left.driver.counts().packets_sent;
        post(cookie);
        assert_eq!(left.driver.counts().packets_sent, sent + 1, "{cookie}");
        // Until the write is acknowledged, so that its completion is there.
        let answered = left.driver.counts().packets;
        while left.driver.counts().packets == answered {
            assert!(Instant::now() < end, "no acknowledgement");
            assert!(right.look().is_none());
            left.ia.progress(ThreadWait::clock());
        }
    }
    for cookie in 0..5 {
        let event = left.look();
        let taken = matches!(event, Some(Event::Dto(done)) if done.cookie == cookie);
        assert!(taken, "{event:?}");
    }
}

/// Short writes that are under way together share datagrams, which the peer gets in runs.
///
/// Spec: ROCE-57, ROCE-184, ROCE-185
#[test]
fn a_stream_of_short_writes_gathers() {
    let (left, right) = (End::open(6, true), End::open(7, true));
    connect(&left, &right);
    let none = CompletionFlags::empty();
    let (writes, mut posted, mut done) = (2_000, 0, 0);
    let before = right.driver.counts();
    while done < writes {
        while posted < writes && posted - done < DEPTH as u64 {
            let (local, remote) = (left.local(0, 8), right.remote(0, 8));
            let post = left
                .ia
                .post_rdma_write(left.ep, &local, posted, &remote, none);
            post.expect("a post");
            posted += 1;
        }
        poll_both([&left, &right], 1, |_, event| is_success(&event));
        done += 1;
    }
    let after = right.driver.counts();
    let (requests, answers) = (
        after.packets - before.packets,
        after.packets_sent - before.packets_sent,
    );
    assert!(requests >= writes, "{requests}");
    // One acknowledgement answers a run.
    assert!(answers * 8 < writes, "{answers} answers to {writes} writes");
}
