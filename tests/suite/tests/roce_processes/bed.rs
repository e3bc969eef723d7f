//! A bed of one process: its adapters reach those of other processes.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use backend_roce::{PathChoice, RoceBackend, RoceDriver, RoceOptions, RoceWait};
use dat_core::backend::{Backend as _, Extensions};
use dat_core::event::ThreadWait;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::Testbed;

/// Duration of a step.
const STEP: Duration = Duration::from_micros(500);
/// Steps without an event after which the bed counts as idle.
const STEPS_TO_REST: usize = 12;

/// Adapters of this process, all at 127.0.0.1, in real time.
///
/// A step never counts as the last one, since nobody here knows what another process is about to
/// send: an awaited event may take as long as the runner's patience. Only a run to rest ends.
pub(crate) struct ProcessBed {
    path: PathChoice,
    /// Steps until the bed counts as idle, during a run to rest.
    steps_to_rest: Cell<Option<usize>>,
    drivers: RefCell<Vec<RoceDriver>>,
}

impl ProcessBed {
    /// Makes a bed whose connections take this way.
    pub(crate) fn over(path: PathChoice) -> Self {
        Self {
            path,
            steps_to_rest: Cell::new(None),
            drivers: RefCell::default(),
        }
    }

    /// Makes an adapter with changed options.
    pub(crate) fn device_with(&self, change: impl FnOnce(&mut RoceOptions)) -> RoceBackend {
        let mut options = RoceOptions::random().expect("random bytes");
        options.connections = 2048;
        options.keys = 1024;
        // Half a minute for an answer, and any time for a receive: other processes may be busy.
        options.timeout = 20;
        options.retries = 7;
        options.response_timeout = 19;
        options.not_ready_retries = 7;
        options.path = self.path;
        change(&mut options);
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let backend = RoceBackend::open(address, options).expect("an adapter");
        assert_eq!(backend.extensions(), Extensions::all());
        self.drivers.borrow_mut().push(backend.driver());
        backend
    }

    /// Makes an adapter that notices the death of a peer within seconds.
    ///
    /// A peer that is stopped is dead to it, too, from its first request to the last answer. Both
    /// ends of a connection are made by this: the one that connects decides about repetitions.
    pub(crate) fn alert_device(&self) -> RoceBackend {
        self.device_with(|options| {
            options.timeout = 16;
            options.retries = 6;
            options.response_timeout = 16;
        })
    }

    /// Returns a wait that sleeps until the adapter that was made last has events.
    pub(crate) fn wait(&self) -> RoceWait {
        let drivers = self.drivers.borrow();
        drivers.last().expect("an adapter").wait()
    }
}

impl Testbed for ProcessBed {
    type Backend = RoceBackend;
    type Lock = HostLock;

    fn device(&self) -> RoceBackend {
        self.device_with(|_| {})
    }

    fn impatient_device(&self) -> RoceBackend {
        self.device_with(|options| options.not_ready_retries = 6)
    }

    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    fn step(&self) -> bool {
        thread::sleep(STEP);
        let waits = || {
            let drivers = self.drivers.borrow();
            drivers.iter().any(RoceDriver::waits_for_peers)
        };
        match self.steps_to_rest.get() {
            None => true,
            Some(0) if !waits() => {
                self.steps_to_rest.set(None);
                false
            }
            Some(steps) => {
                self.steps_to_rest.set(Some(steps.saturating_sub(1)));
                true
            }
        }
    }

    fn advance(&self, to: Instant) {
        let left = to.as_micros().saturating_sub(self.now().as_micros());
        thread::sleep(Duration::from_micros(left));
    }

    fn reset_idle_count(&self) {
        self.steps_to_rest.set(Some(STEPS_TO_REST));
    }

    fn is_stepped(&self) -> bool {
        false
    }

    fn max_steps(&self) -> usize {
        usize::MAX
    }
}
