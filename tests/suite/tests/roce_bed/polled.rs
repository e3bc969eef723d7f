//! A bed of adapters with sockets and without threads, in virtual time.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use backend_roce::{PathChoice, RoceBackend, RoceDriver, RoceOptions};
use dat_core::attributes::IaAddress;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{ExtendedTestbed, RsmTestbed, Testbed};

use crate::exceptions::exception;

/// The longest wait that counts as a step, in microseconds.
const SOON: u32 = 1_000;
/// Steps without a packet after which the bed counts as idle.
const STEPS_TO_REST: usize = 6;

/// The next address; each adapter has its own, since the tests run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Adapters that move their packets in steps.
pub(crate) struct PolledBed {
    path: PathChoice,
    now: Cell<Instant>,
    idle: Cell<usize>,
    /// Packets that all adapters had received at the last step.
    packets: Cell<u64>,
    drivers: RefCell<Vec<RoceDriver>>,
}

impl PolledBed {
    /// Makes a bed whose connections take this way.
    pub(crate) fn over(path: PathChoice) -> Self {
        Self {
            path,
            now: Cell::new(Instant::ZERO),
            idle: Cell::new(0),
            packets: Cell::new(0),
            drivers: RefCell::default(),
        }
    }

    fn open(&self, ip: IpAddr) -> RoceBackend {
        let mut options = RoceOptions::random().expect("random bytes");
        options.connections = 128;
        options.keys = 1024;
        options.not_ready_timer = 12;
        options.path = self.path;
        options.polled = true;
        let address = SocketAddr::new(ip, 0);
        let opened = RoceBackend::open(address, options);
        let backend = opened.unwrap_or_else(|error| panic!("{address}: {error}"));
        self.drivers.borrow_mut().push(backend.driver());
        backend
    }

    /// Lets all adapters do what is due, and returns true if packets have come.
    fn drive(&self) -> bool {
        let drivers = self.drivers.borrow();
        drivers
            .iter()
            .for_each(|driver| driver.drive(self.now.get()));
        let packets = drivers.iter().map(|driver| driver.counts().packets).sum();
        self.packets.replace(packets) != packets
    }

    /// Moves the time to the next timer, if it ends by then.
    fn skip_to_timer(&self, by: Option<Instant>) -> bool {
        let drivers = self.drivers.borrow();
        let next = drivers.iter().filter_map(RoceDriver::deadline).min();
        let next = next.filter(|next| Some(*next) <= by);
        next.inspect(|next| self.now.set(self.now.get().max(*next)))
            .is_some()
    }
}

/// Returns an address that no other adapter has.
fn free_address() -> IpAddr {
    let process = std::process::id() % 50;
    let [.., high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(127, 200 + process as u8, high, low).into()
}

impl Testbed for PolledBed {
    type Backend = RoceBackend;
    type Lock = HostLock;

    fn device(&self) -> RoceBackend {
        self.open(free_address())
    }

    fn now(&self) -> Instant {
        self.now.get()
    }

    fn step(&self) -> bool {
        // A peer without a receive is asked again soon; nothing else is worth a step.
        let moved = self.drive() || self.skip_to_timer(self.now.get().after(SOON));
        let idle = if moved { 0 } else { self.idle.get() + 1 };
        self.idle.set(idle);
        idle < STEPS_TO_REST
    }

    fn reset_idle_count(&self) {
        self.idle.set(0);
    }

    fn skip_reason(&self, test: &str) -> Option<String> {
        exception("local", "", test)
    }

    fn advance(&self, to: Instant) {
        loop {
            while self.step() {}
            if !self.skip_to_timer(Some(to)) {
                break;
            }
        }
        self.now.set(to);
    }
}

impl ExtendedTestbed for PolledBed {
    fn extended_device(&self) -> RoceBackend {
        self.device()
    }

    fn extended_non_coherent_device(&self) -> RoceBackend {
        unreachable!("the suite is told that there is none")
    }
}

impl RsmTestbed for PolledBed {
    fn device_at(&self, address: IaAddress) -> RoceBackend {
        let address = address.socket_address().expect("an address of this bed");
        self.open(address.ip())
    }
}
