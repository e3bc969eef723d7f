//! A bed on an RDMA device of this machine.
//!
//! `DAT_DEVICE` names the device; the default is the first one with an active port. `DAT_WINDOWS=2`
//! asks for windows of type 2 on a device with both types.

use std::cell::Cell;
use std::time::Duration;
use std::{env, thread};

use backend_verbs::{VerbsBackend, VerbsOptions, WindowKind, devices};
use dat_core::backend::Backend;
use dat_core::event::ThreadWait;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::Testbed;

use crate::exceptions::exception;

/// The device of `libdat_verbs.so`.
pub(crate) const OF_LIBRARY: &str = "dat0";
/// Duration of a step.
const STEP: Duration = Duration::from_micros(1000);
/// Steps without an event after which the bed counts as idle.
const STEPS_TO_REST: usize = 6;

/// A bed in real time; both ends of every connection are on one device.
pub(crate) struct VerbsBed {
    device: String,
    vendor: String,
    steps: Cell<usize>,
    steps_to_rest: usize,
}

impl VerbsBed {
    pub(crate) fn new() -> Self {
        Self::resting(STEPS_TO_REST)
    }

    /// Makes a bed that counts as idle after `steps_to_rest` steps without an event.
    pub(crate) fn resting(steps_to_rest: usize) -> Self {
        let device = env::var("DAT_DEVICE").ok().or_else(|| {
            let first = devices().into_iter().find(|device| device.active);
            first.map(|device| device.name)
        });
        let device = device.expect("this machine has no RDMA device with an active port");
        let vendor = match &*device {
            // It has the vendor number of soft-RoCE, but not its exceptions.
            OF_LIBRARY => "dat-verbs",
            _ => open(&device, 7).ia_attributes().vendor_name,
        };
        Self {
            vendor: vendor.to_owned(),
            device,
            steps: Cell::new(0),
            steps_to_rest,
        }
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &str {
        &self.device
    }
}

fn open(device: &str, not_ready_retries: u8) -> VerbsBackend {
    let mut options = VerbsOptions::default();
    options.not_ready_retries = not_ready_retries;
    options.windows = windows();
    VerbsBackend::open(device, options).unwrap_or_else(|error| panic!("{device}: {error:?}"))
}

/// Tests that need a window that another queue pair can bind, or that survives a reset.
const NOT_OF_TYPE_2: [&str; 3] = [
    "binds_polled_in_any_order_leave_the_last",
    "binds_under_way_are_of_one_endpoint",
    "flushed_rebind_keeps_the_old_binding",
];

/// Returns the kind of windows to ask for.
fn windows() -> WindowKind {
    match env::var("DAT_WINDOWS").as_deref() {
        Ok("2") => WindowKind::QueuePair,
        _ => WindowKind::Domain,
    }
}

impl Testbed for VerbsBed {
    type Backend = VerbsBackend;
    type Lock = HostLock;

    /// Makes a device whose messages wait for a receive for ever.
    fn device(&self) -> VerbsBackend {
        open(&self.device, 7)
    }

    fn impatient_device(&self) -> VerbsBackend {
        open(&self.device, 6)
    }

    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    /// Sleeps for a step; returns false after enough steps without an event.
    fn step(&self) -> bool {
        thread::sleep(STEP);
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() < self.steps_to_rest {
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
        if windows() == WindowKind::QueuePair && NOT_OF_TYPE_2.contains(&test) {
            return Some("a window of type 2 is of the queue pair that it was bound on".into());
        }
        exception("verbs", &self.vendor, test)
    }

    fn max_steps(&self) -> usize {
        60_000
    }
}
