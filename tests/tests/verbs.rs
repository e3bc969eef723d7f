//! The conformance suite on an RDMA device of this machine, in real time, with both ends of every connection on it.
//!
//! `DAT_DEVICE` names the device; else it is the first one. Tests share its ports, so they run one after the other
//! (`--test-threads=1`). What verbs cannot carry is listed with its reason in `tests/backends.toml`.

use backend_verbs::{VerbsBackend, VerbsOptions, devices};
use core::cell::Cell;
use core::time::Duration;
use dat_core::event::ThreadWait;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::Testbed;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::{env, thread};

/// How long a step takes.
const STEP: Duration = Duration::from_micros(1000);
/// Steps without an event after which everything is at rest.
const STEPS_TO_REST: usize = 6;

struct VerbsBed {
    device: String,
    steps: Cell<usize>,
}

impl VerbsBed {
    fn new() -> Self {
        let device = env::var("DAT_DEVICE").ok().or_else(|| {
            let first = devices().into_iter().find(|device| device.active);
            first.map(|device| device.name)
        });
        Self {
            device: device.expect("this machine has no RDMA device with an active port"),
            steps: Cell::new(0),
        }
    }
}

impl Testbed for VerbsBed {
    type Backend = VerbsBackend;
    type Lock = HostLock;

    fn device(&self) -> VerbsBackend {
        let mut options = VerbsOptions::default();
        // Half a second until a message without a receive fails: longer than what is tried before.
        options.not_ready_timer = 26;
        VerbsBackend::open(&self.device, options)
            .unwrap_or_else(|error| panic!("{}: {error:?}", self.device))
    }

    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    /// Lets some time pass; that nothing moves shows only after a while.
    fn step(&self) -> bool {
        thread::sleep(STEP);
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() < STEPS_TO_REST {
            return true;
        }
        self.steps.set(0);
        false
    }

    fn advance(&self, to: Instant) {
        let left = to.as_micros().saturating_sub(self.now().as_micros());
        thread::sleep(Duration::from_micros(left));
    }

    fn rest(&self) {
        self.steps.set(0);
    }

    fn stands_still(&self) -> bool {
        false
    }

    fn excused(&self, test: &str) -> Option<String> {
        exceptions().get(test).cloned()
    }

    fn patience(&self) -> usize {
        10_000
    }
}

#[derive(Deserialize)]
struct Backends {
    backend: Vec<Backend>,
}

#[derive(Deserialize)]
struct Backend {
    name: String,
    #[serde(default)]
    except: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    tests: Vec<String>,
    reason: String,
}

/// The tests that verbs cannot carry, with the reasons.
fn exceptions() -> &'static HashMap<String, String> {
    static EXCEPTIONS: OnceLock<HashMap<String, String>> = OnceLock::new();
    EXCEPTIONS.get_or_init(|| {
        let known: Backends = toml::from_str(include_str!("../backends.toml")).expect("backends");
        let own = known.backend.into_iter().filter(|one| one.name == "verbs");
        own.flat_map(|backend| backend.except)
            .flat_map(|exception| {
                let reason = exception.reason;
                exception
                    .tests
                    .into_iter()
                    .map(move |test| (test, reason.clone()))
            })
            .collect()
    })
}

dat_tests::conformance_suite!(base, VerbsBed::new());
