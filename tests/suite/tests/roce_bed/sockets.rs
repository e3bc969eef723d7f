//! A bed of adapters with sockets on the loop-back interface, and with threads.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use backend_roce::{PathChoice, RoceBackend, RoceDriver, RoceOptions};
use dat_core::attributes::IaAddress;
use dat_core::event::ThreadWait;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{RsmTestbed, Testbed};

use crate::crowd::{End, join, stream};
use crate::exceptions::exception;

/// Duration of a step.
const STEP: Duration = Duration::from_micros(1000);
/// Steps without an event after which the bed counts as idle.
const STEPS_TO_REST: usize = 6;

/// The next address; each adapter has its own, since the tests run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Adapters in real time.
///
/// They are idle only if none waits for a peer, however long a busy machine makes it wait.
pub(crate) struct SocketBed {
    path: PathChoice,
    steps: Cell<usize>,
    /// Packets that all adapters had received at the last step.
    packets: Cell<u64>,
    drivers: RefCell<Vec<RoceDriver>>,
}

impl SocketBed {
    /// Makes a bed whose connections take this way.
    pub(crate) fn over(path: PathChoice) -> Self {
        Self {
            path,
            steps: Cell::new(0),
            packets: Cell::new(0),
            drivers: RefCell::default(),
        }
    }

    /// Makes a device whose sockets have small buffers.
    pub(crate) fn small_device(&self) -> RoceBackend {
        let mut options = options();
        // As the kernel counts: twice as much, 212,992 bytes.
        options.receive_buffer = 106_496;
        self.open(free_address(), options)
    }

    fn open(&self, ip: IpAddr, mut options: RoceOptions) -> RoceBackend {
        options.path = self.path;
        let address = SocketAddr::new(ip, 0);
        let opened = RoceBackend::open(address, options);
        let backend = opened.unwrap_or_else(|error| panic!("{address}: {error}"));
        self.drivers.borrow_mut().push(backend.driver());
        backend
    }
}

/// Returns an address that no other adapter has.
fn free_address() -> IpAddr {
    let process = std::process::id() % 100;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 100 + process as u8, high, low).into()
}

fn options() -> RoceOptions {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut options = RoceOptions::new(u128::from(number).to_ne_bytes());
    options.connections = 128;
    options.keys = 1024;
    // Half a minute for an answer, and any time for a receive.
    options.timeout = 20;
    options.not_ready_retries = 7;
    options
}

/// Returns options with which messages fail after 70 ms without a receive.
fn impatient_options() -> RoceOptions {
    RoceOptions {
        not_ready_retries: 6,
        ..options()
    }
}

impl Testbed for SocketBed {
    type Backend = RoceBackend;
    type Lock = HostLock;

    fn device(&self) -> RoceBackend {
        self.open(free_address(), options())
    }

    fn impatient_device(&self) -> RoceBackend {
        self.open(free_address(), impatient_options())
    }

    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    /// Sleeps for a step; returns false after enough steps without an event.
    fn step(&self) -> bool {
        thread::sleep(STEP);
        let drivers = self.drivers.borrow();
        let packets = drivers.iter().map(|driver| driver.counts().packets).sum();
        if self.packets.replace(packets) != packets {
            self.steps.set(0);
        }
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() < STEPS_TO_REST || drivers.iter().any(RoceDriver::waits_for_peers) {
            return true;
        }
        self.steps.set(0);
        false
    }

    fn advance(&self, to: Instant) {
        let left = to.as_micros().saturating_sub(self.now().as_micros());
        thread::sleep(Duration::from_micros(left));
    }

    fn reset_idle_count(&self) {
        self.steps.set(0);
    }

    fn is_stepped(&self) -> bool {
        false
    }

    fn skip_reason(&self, test: &str) -> Option<String> {
        let is_local = self.path == PathChoice::Local;
        if test == "endpoint_is_reused_after_a_reset" && !is_local {
            return Some("its disconnect may overtake an acknowledgement".into());
        }
        if test == "a_signal_waits_for_data_of_a_connection_that_is_over" {
            return Some("a message that is under way is flushed with its connection".into());
        }
        let unfinished = [
            "graceful_disconnect_drains_the_requests",
            "freeing_waits_for_entries_that_are_not_begun",
            "late_bind_failure_breaks_the_connection",
        ];
        if unfinished.contains(&test) {
            return Some(
                "needs requests that are not carried out yet when the next call comes".into(),
            );
        }
        let virtual_time = ["write_post_does_not_wait", "shared_post_does_not_wait"];
        if virtual_time.contains(&test) {
            return Some("looks at a virtual clock to see that no time passed".into());
        }
        if test == "infinite_timeouts_never_run_out" {
            return Some("lets more than two hours pass".into());
        }
        exception(if is_local { "local" } else { "roce" }, "", test)
    }

    fn max_steps(&self) -> usize {
        60_000
    }
}

impl RsmTestbed for SocketBed {
    fn device_at(&self, address: IaAddress) -> RoceBackend {
        let address = address.socket_address().expect("an address of this bed");
        self.open(address.ip(), options())
    }

    fn impatient_device_at(&self, address: IaAddress) -> RoceBackend {
        let address = address.socket_address().expect("an address of this bed");
        self.open(address.ip(), impatient_options())
    }
}

/// 64 queue pairs that stream to one socket lose no packet, though its buffer has room for 25.
///
/// Spec: ROCE-183
#[test]
fn queue_pairs_to_one_socket_lose_nothing() {
    for reads in [false, true] {
        let bed = SocketBed::over(PathChoice::Packets);
        let (left, right) = (bed.small_device(), bed.small_device());
        let (mut left, mut right) = (End::new(left, 64), End::new(right, 64));
        join(&bed, &mut left, &mut right, 7174);
        for size in [(8, 50_000), (32, 100)] {
            stream(&bed, &mut left, &mut right, size, reads);
        }
        for end in [left, right] {
            let counts = end.device.counts();
            let requester = counts.requester;
            let repeated = (requester.retransmits, requester.timeouts, requester.losses);
            assert_eq!(repeated, (0, 0, 0), "reads: {reads}; {counts:?}");
        }
    }
}
