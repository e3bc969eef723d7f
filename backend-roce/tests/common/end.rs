//! Adapters with sockets on the loop-back interface, each with a connected endpoint.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use backend_roce::{PathChoice, RoceBackend, RoceDriver, RoceOptions, parse_address};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId, PspId, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;
use dat_storage::{Limits, OwnedIa};

pub const QUALIFIER: u64 = 20_184;
pub const DEPTH: i32 = 100;
/// Length of the memory of an end; an operation takes a slot of `SLOT` bytes.
pub const LENGTH: usize = SLOT * DEPTH as usize;
pub const SLOT: usize = 10_000;
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One end of a connection.
pub struct End {
    pub ia: Arc<OwnedIa<RoceBackend, HostLock>>,
    pub pz: PzId,
    pub address: IaAddress,
    pub driver: RoceDriver,
    pub evd: EvdId,
    pub ep: EpId,
    pub bytes: &'static [AtomicU8],
    pub memory: LmrCreated,
}

impl End {
    /// Opens an adapter at an address of the loop-back interface that no other test uses.
    pub fn open(number: u8, polled: bool) -> Self {
        Self::open_with(number, polled, "")
    }

    /// As `open`, with options of an address, such as `?mtu=1024`.
    pub fn open_with(number: u8, polled: bool, options_of_address: &str) -> Self {
        Self::open_on(number, polled, options_of_address, PathChoice::Packets)
    }

    /// As `open_with`, for connections of another way than packets.
    pub fn open_on(number: u8, polled: bool, options_of_address: &str, path: PathChoice) -> Self {
        Self::open_by(number, options_of_address, |options| {
            (options.polled, options.path) = (polled, path);
        })
    }

    /// As `open_with`, with more options.
    pub fn open_by(
        number: u8,
        options_of_address: &str,
        choose: impl FnOnce(&mut RoceOptions),
    ) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 48 + number, high, low);
        Self::open_at(ip, options_of_address, choose)
    }

    /// As `open_by`, at any address.
    pub fn open_at(
        ip: Ipv4Addr,
        options_of_address: &str,
        choose: impl FnOnce(&mut RoceOptions),
    ) -> Self {
        let mut options = RoceOptions::random().expect("random bytes");
        options.connections = 64;
        options.keys = 256;
        choose(&mut options);
        if options.path != PathChoice::Packets {
            // Those that end keep their places for 17 s. A message waits for a receive for ever.
            options.connections = 1024;
            options.not_ready_retries = 7;
        }
        // 17 s: an end that waits for a processor is no loss.
        options.timeout = 22;
        let address = parse_address(&format!("{ip}{options_of_address}")).expect("an address");
        address.apply_to(&mut options);
        let backend = RoceBackend::open(address.socket, options).expect("an adapter");
        let (address, driver) = (backend.ia_attributes().ia_address, backend.driver());
        let Ok(ia) = OwnedIa::open(backend, &Limits::default(), 16) else {
            panic!("no interface adapter");
        };
        let pz = ia.pz_create().expect("a zone");
        Self::with(Arc::new(ia), pz, address, driver)
    }

    /// Makes another end of the same adapter, with the same memory.
    pub fn beside(other: &Self) -> Self {
        let ia = Arc::clone(&other.ia);
        let (evd, ep) = Self::endpoint(&ia, other.pz);
        Self {
            ia,
            driver: other.driver.clone(),
            evd,
            ep,
            ..*other
        }
    }

    fn endpoint(ia: &OwnedIa<RoceBackend, HostLock>, pz: PzId) -> (EvdId, EpId) {
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
        (evd, ep)
    }

    fn with(
        ia: Arc<OwnedIa<RoceBackend, HostLock>>,
        pz: PzId,
        address: IaAddress,
        driver: RoceDriver,
    ) -> Self {
        let (evd, ep) = Self::endpoint(&ia, pz);
        let bytes: Vec<AtomicU8> = (0..LENGTH).map(|_| AtomicU8::new(1)).collect();
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
            pz,
            address,
            driver,
            evd,
            ep,
            bytes,
            memory,
        }
    }

    pub fn local(&self, slot: usize, length: usize) -> [LmrTriplet; 1] {
        [LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + (slot * SLOT) as u64,
            length: length as u64,
        }]
    }

    pub fn remote(&self, slot: usize, length: usize) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: self.memory.registered_address + (slot * SLOT) as u64,
            length: length as u64,
        }
    }

    /// Frees the endpoint and its queue.
    pub fn free(self) {
        self.ia.ep_free(self.ep).expect("an endpoint");
        self.ia.evd_free(self.evd).expect("a queue");
    }

    /// Takes an event, if there is one, and lets the timers run.
    pub fn look(&self) -> Option<Event> {
        self.look_at(ThreadWait::clock())
    }

    /// As `look`, at a time that the test chooses; only adapters without a thread depend on it.
    pub fn look_at(&self, now: dat_core::time::Instant) -> Option<Event> {
        self.ia.progress(now);
        self.ia.evd_dequeue(self.evd).ok()
    }

    pub fn fill(&self, value: u8) {
        self.bytes
            .iter()
            .for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    pub fn holds(&self, slots: usize, length: usize, value: u8) -> bool {
        let slots = self.bytes.chunks(SLOT).take(slots);
        let mut bytes = slots.flat_map(|slot| slot.iter().take(length));
        bytes.all(|byte| byte.load(Ordering::Relaxed) == value)
    }
}

/// Opens an adapter whose connections go through queues in memory.
pub fn local_end(number: u8, polled: bool) -> End {
    End::open_on(number, polled, "", PathChoice::Local)
}

/// Waits for the event that ends the connection of an end.
pub fn end_of(end: &End) -> ConnectionEventKind {
    loop {
        if let Event::Connection { kind, .. } = next(end) {
            return kind;
        }
    }
}

/// Waits for the next event of an end.
pub fn next(end: &End) -> Event {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no event");
        if let Some(event) = end.look() {
            return event;
        }
    }
}

/// Polls both ends until `done` returns true for as many events as are wanted.
pub fn poll_both(ends: [&End; 2], wanted: usize, mut done: impl FnMut(usize, Event) -> bool) {
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

pub fn connect(left: &End, right: &End) {
    connect_at(left, right, QUALIFIER);
}

pub fn listen(end: &End, qualifier: u64) -> PspId {
    let point = end.ia.psp_create(qualifier, end.evd, PspFlags::Consumer);
    point.expect("a service point")
}

pub fn param(address: SocketAddr, qualifier: u64) -> ConnectParam<'static> {
    ConnectParam {
        address: address.into(),
        qualifier,
        timeout: 60_000_000,
        private_data: b"polled",
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}

/// Begins an attempt.
pub fn attempt(left: &End, right: &End, qualifier: u64) -> dat_core::error::Result<()> {
    let target = right.address.socket_address().expect("an address");
    let param = param(target, qualifier);
    left.ia.ep_connect(left.ep, &param, ThreadWait::clock())
}

/// As `connect`, with another qualifier; returns the service point.
pub fn connect_at(left: &End, right: &End, qualifier: u64) -> PspId {
    let point = listen(right, qualifier);
    attempt(left, right, qualifier).expect("an attempt");
    poll_both([left, right], 2, |_, event| match event {
        Event::ConnectionRequest { cr, .. } => {
            let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
            accepted.expect("an acceptance");
            false
        }
        Event::Connection { kind, .. } => {
            let reasons = [left, right].map(|end| end.driver.not_local());
            assert_eq!(kind, ConnectionEventKind::Established, "{reasons:?}");
            true
        }
        other => panic!("{other:?}"),
    });
    point
}

pub fn is_success(event: &Event) -> bool {
    matches!(event, Event::Dto(done) if done.status == DtoStatus::Success)
}

/// Moves data both ways: writes and reads, short and long, and messages. Writes end in order.
pub fn exchange(left: &End, right: &End) {
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
        // A write and a read of several packets.
        near.fill(15);
        let whole = SLOT * DEPTH as usize;
        let (local, remote) = (near.local(0, whole), far.remote(0, whole));
        let posted = near.ia.post_rdma_write(near.ep, &local, 1, &remote, none);
        posted.expect("a post");
        poll_both([near, far], 1, |_, event| is_success(&event));
        assert!(far.holds(DEPTH as usize, SLOT, 15));
        far.fill(14);
        let posted = near.ia.post_rdma_read(near.ep, &local, 1, &remote, none);
        posted.expect("a post");
        poll_both([near, far], 1, |_, event| is_success(&event));
        assert!(near.holds(DEPTH as usize, SLOT, 14));
        let received = far.ia.post_recv(far.ep, &far.local(1, SLOT), 2, none);
        received.expect("a receive");
        let sent = near.ia.post_send(near.ep, &near.local(0, 500), 3, none);
        sent.expect("a post");
        poll_both([near, far], 2, |_, event| is_success(&event));
    }
}
