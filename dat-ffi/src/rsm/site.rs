//! An open controller: its engine, the thread that serves it, and the waiters for signals.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dat_core::backend::HostDriver as _;
use dat_core::event::{Wait, WakeReason};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_rsm::{
    ControllerConfig, ControllerId, Deaf, NodeEntry, Options, Result, Rsm, RsmError, SegmentHandle,
};
use dat_storage::Limits;

use super::map::Mapped;
use super::poll::Polled;
use super::signal::Waiters;
use crate::adapter::{Openable, WaitOf};
use crate::boundary::{Blocked, WakeFd, engine_of, has_memory, start_thread, system_has_memory};

/// Connections to nodes that an adapter has endpoints for.
const LINKS: usize = 64;
/// Posted requests and receives of a connection.
const RECORDS_PER_LINK: usize = 160;
/// Registrations: several for each segment, one for each local memory handle, each immediate entry
/// and each connection.
const REGIONS: usize = 2048;
const EVENTS: usize = 4096;
const DISPATCHERS: usize = 8;

/// Sizes that an adapter starts with. A process opens each controller once.
const LIMITS: Limits = Limits {
    endpoints: LINKS + 2,
    dispatchers: DISPATCHERS,
    notification_objects: 1,
    shared_receive_queues: 1,
    service_points: 1,
    connection_requests: LINKS + 2,
    zones: 8,
    local_regions: REGIONS,
    remote_regions: 1,
    events: EVENTS,
    records: (LINKS + 2) * RECORDS_PER_LINK,
};

/// The parameters of a site.
pub(super) struct Shape {
    /// The name of the controller.
    pub(super) name: &'static str,
    /// Connection qualifier to listen on once the first segment is published.
    pub(super) qualifier: u64,
    /// The nodes that it reaches, its own included.
    pub(super) nodes: Vec<NodeEntry>,
    /// Set for the controller that reaches its own node only.
    pub(super) loopback: bool,
}

/// An open controller, which stays as long as the process.
pub(super) struct Site<B: Openable> {
    pub(super) engine: Rsm<'static, B, HostLock>,
    pub(super) name: &'static str,
    /// Connection qualifier for importers.
    pub(super) qualifier: u64,
    /// Number of nodes that it reaches.
    pub(super) nodes: usize,
    driver: B::Driver,
    /// Sleepers that no thread uses, and wake_fds.
    idle: Mutex<Vec<WaitOf<B>>>,
    wake_fds: Mutex<Vec<WakeFd>>,
    /// The controller that a thread serves.
    served: Mutex<Option<ControllerId>>,
    /// Polled segments, by the word of the segment's handle.
    polled: Mutex<BTreeMap<u64, Polled>>,
    /// Mappings, by the word of the connection's handle.
    mapped: Mutex<BTreeMap<u64, Mapped>>,
    pub(super) waiters: Waiters,
}

impl<B: Openable> Site<B> {
    /// Returns true if the device checks that registered memory exists.
    #[expect(
        clippy::unused_self,
        reason = "the type of the site is known where it is called only"
    )]
    pub(super) const fn pins_memory(&self) -> bool {
        B::PINS_MEMORY
    }

    /// Opens an adapter and makes an engine on it.
    ///
    /// # Errors
    /// CTLR_NOT_PRESENT: the adapter cannot be opened; and those of `Rsm::new`.
    pub(super) fn open(backend: B, options: Options, shape: Shape) -> Result<Self> {
        let driver = backend.driver();
        let nodes = shape.nodes.len();
        let config = |ia| ControllerConfig {
            name: shape.name,
            ia,
            // The first process of a node that publishes listens. `loopback` has this process only.
            qualifier: if shape.loopback { shape.qualifier } else { 0 },
            nodes: shape.nodes,
        };
        let limits = dat_rsm::Limits {
            links: LINKS,
            ..options.limits
        };
        let options = Options { limits, ..options };
        let mut engine = engine_of(backend, &LIMITS, 16, options, config)?;
        engine.ask_for_memory(has_memory);
        Ok(Self {
            engine,
            name: shape.name,
            qualifier: shape.qualifier,
            nodes,
            driver,
            idle: Mutex::default(),
            wake_fds: Mutex::default(),
            served: Mutex::default(),
            polled: Mutex::default(),
            mapped: Mutex::default(),
            waiters: Waiters::default(),
        })
    }

    /// Takes a sleeper.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: the system cannot make one.
    fn sleeper(&self) -> Result<WaitOf<B>> {
        let known = locked(&self.idle).pop();
        match known {
            Some(sleeper) => Ok(sleeper),
            None => self
                .driver
                .wait()
                .map_err(|_| RsmError::InsufficientResources),
        }
    }

    /// Calls `sleep` with a sleeper that a signal of the system does not end.
    ///
    /// For calls that have no error for an interruption.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: there is no sleeper; and those of `sleep`.
    pub(super) fn sleeping<R>(
        &self,
        sleep: impl FnOnce(&mut Deaf<'_, WaitOf<B>>) -> Result<R>,
    ) -> Result<R> {
        self.with_sleeper(|sleeper| sleep(&mut Deaf::new(sleeper)))
    }

    /// Calls `sleep` with a sleeper that a signal of the system ends.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: there is no sleeper; and those of `sleep`.
    pub(super) fn sleeping_lightly<R, E: From<RsmError>>(
        &self,
        sleep: impl FnOnce(&mut Light<'_, WaitOf<B>>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let wake_fd = locked(&self.wake_fds).pop().or_else(WakeFd::new);
        let slept = self.with_sleeper(|sleeper| {
            sleep(&mut Light {
                sleeper,
                wake_fd: wake_fd.as_ref(),
                signals: None,
            })
        });
        let mut wake_fds = locked(&self.wake_fds);
        // Without memory the descriptor is closed.
        if wake_fds.try_reserve(1).is_ok() {
            wake_fds.extend(wake_fd);
        }
        slept
    }

    fn with_sleeper<R, E: From<RsmError>>(
        &self,
        sleep: impl FnOnce(&mut WaitOf<B>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let mut sleeper = self.sleeper()?;
        let result = sleep(&mut sleeper);
        locked(&self.idle).push(sleeper);
        result
    }

    /// Gets the controller; the first time, starts a thread that serves it.
    ///
    /// The thread serves importers while the program makes no calls.
    ///
    /// # Errors
    /// As `Rsm::get_controller`; INSUFFICIENT_RESOURCES: the system cannot start a thread.
    pub(super) fn get(&'static self) -> Result<ControllerId>
    where
        Self: Sync,
    {
        // Waits for a release under way, because a controller that is half released cannot be got.
        let mut served = locked(&self.served);
        self.hurry();
        let controller = self.engine.get_controller(Some(self.name))?;
        if *served == Some(controller) {
            return Ok(controller);
        }
        match self.serve(controller) {
            Ok(()) => {
                *served = Some(controller);
                Ok(controller)
            }
            Err(error) => {
                self.sleeping(|wait| self.engine.release_controller(controller, wait))?;
                Err(error)
            }
        }
    }

    /// Releases the controller.
    ///
    /// # Errors
    /// As `Rsm::release_controller`.
    pub(super) fn release(&self, controller: ControllerId) -> Result<()> {
        let turn = locked(&self.served);
        let released = self.sleeping(|wait| self.engine.release_controller(controller, wait));
        drop(turn);
        self.look();
        released
    }

    fn serve(&'static self, controller: ControllerId) -> Result<()>
    where
        Self: Sync,
    {
        let mut sleeper = self.sleeper()?;
        let serve = move || {
            let mut look = || self.look();
            while self
                .engine
                .serve(controller, &mut sleeper, &mut look)
                .is_err()
            {}
            locked(&self.idle).push(sleeper);
        };
        start_thread(c"rsm", Box::new(serve)).map_err(|_| RsmError::InsufficientResources)
    }

    /// Wakes waiters, updates polled descriptors and moves mappings after a possible change.
    pub(super) fn look(&self) {
        self.waiters.tell();
        self.polled()
            .retain(|_, polled| polled.follow(&self.engine));
        self.mapped()
            .retain(|_, mapped| mapped.follow(&self.engine));
    }

    /// Updates the polled descriptor of a segment after one of its signals was taken.
    pub(super) fn look_at(&self, segment: SegmentHandle) {
        if let Some(polled) = self.polled().get_mut(&segment.handle().to_raw()) {
            polled.follow(&self.engine);
        }
    }

    /// Makes progress up to four times, as long as there is something to handle.
    pub(super) fn hurry(&self) {
        let mut looks = 0..4;
        while looks.next().is_some() && self.engine.progress(self.driver.now()) != 0 {}
    }

    pub(super) fn polled(&self) -> MutexGuard<'_, BTreeMap<u64, Polled>> {
        locked(&self.polled)
    }

    pub(super) fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, Mapped>> {
        locked(&self.mapped)
    }
}

/// A sleeper that a signal of the system ends, also one that comes while its thread is awake.
///
/// The signals are blocked from the first sleep on. A call that need not sleep pays nothing. If
/// the process has no descriptor left, or no memory, only a sleep is interrupted.
pub(super) struct Light<'w, W> {
    sleeper: &'w mut W,
    wake_fd: Option<&'w WakeFd>,
    signals: Option<Blocked>,
}

impl<W: Wait> Wait for Light<'_, W> {
    fn now(&mut self) -> Instant {
        self.sleeper.now()
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn begin(&mut self) {
        self.sleeper.begin();
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        if self.signals.is_none() {
            // The first use of a thread takes memory, whose lack would end the process.
            let wake_fd = self.wake_fd.filter(|_| system_has_memory());
            self.signals = wake_fd.map(Blocked::on);
        }
        if self.signals.as_mut().is_some_and(Blocked::is_interrupted) {
            return WakeReason::Interrupted;
        }
        if until.is_some_and(|until| until <= self.sleeper.now()) {
            return WakeReason::TimedOut;
        }
        self.sleeper.wait(until)
    }
}

/// Locks a mutex, also after a panic: no code leaves data half changed under a lock.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use dat_core::event::OwnSleep;

    use super::*;
    use crate::boundary::without_memory;

    /// Tells whether its thread has a sleep of its own.
    struct Sleeper(bool);

    impl Wait for Sleeper {
        fn now(&mut self) -> Instant {
            Instant::ZERO
        }

        fn waker(&self) -> Waker {
            Waker::noop().clone()
        }

        fn begin(&mut self) {}

        fn wait(&mut self, _: Option<Instant>) -> WakeReason {
            self.0 = OwnSleep::get().is_some();
            WakeReason::Woken
        }
    }

    /// Sleeps; returns true if that was the thread's own way.
    fn sleeps_in_its_own_way(wake_fd: &WakeFd) -> bool {
        let mut sleeper = Sleeper(false);
        let mut light = Light {
            sleeper: &mut sleeper,
            wake_fd: Some(wake_fd),
            signals: None,
        };
        assert_eq!(light.wait(None), WakeReason::Woken);
        drop(light);
        sleeper.0
    }

    /// The first use of a thread takes memory, whose lack would end the process.
    #[test]
    fn a_thread_has_a_sleep_of_its_own_only_if_there_is_memory() {
        const CHILD: &str = "DAT_FFI_WITHOUT_MEMORY";
        const NAME: &str =
            "rsm::site::tests::a_thread_has_a_sleep_of_its_own_only_if_there_is_memory";
        if env::var_os(CHILD).is_none() {
            // Other tests of this process need memory.
            let child = Command::new(env::current_exe().unwrap())
                .args([NAME, "--exact"])
                .env(CHILD, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            assert!(
                child.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        let wake_fd = WakeFd::new().unwrap();
        assert!(!without_memory(|| sleeps_in_its_own_way(&wake_fd)));
        assert!(sleeps_in_its_own_way(&wake_fd));
    }
}
