//! Adapters of `dat-host` on the devices of this program.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dat_core::backend::{HostBackend, HostDriver};
use dat_core::event::{Event, ThreadWait};
use dat_core::id::EvdId;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_core::{ErrorKind, Ia};
use dat_devices::Visitor;
use dat_host::{Adapter, Driver, Options};

use super::transport::Carrier;
use crate::failure::{During, Failure, Result};

/// The way to wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The thread sleeps.
    Block,
    /// The thread polls, and yields after `looks` empty polls.
    Poll { looks: u32 },
}

/// An adapter and its driver.
pub(crate) type Driven = (Adapter, Drive);

/// The core's adapter of a device, for measurements.
pub(crate) type Core<B> = Ia<'static, B, HostLock>;

/// The driver of an adapter, and how its thread waits.
pub(crate) struct Drive {
    driver: Driver,
    waiting: Waiting,
}

impl Drive {
    /// Opens a device that the caller drives.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    pub(crate) fn open(device: &Carrier, waiting: Waiting) -> Result<Driven> {
        struct Opens(Waiting);
        impl Visitor for Opens {
            type Output = Result<Driven>;

            fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Result<Driven> {
                Drive::on(backend, driver, self.0)
            }
        }
        device.open(Opens(waiting))?
    }

    /// Opens an adapter on a backend; the caller drives it.
    ///
    /// # Errors
    /// - Operation: the adapter cannot be opened.
    pub(crate) fn on(
        backend: impl HostBackend,
        driver: impl HostDriver,
        waiting: Waiting,
    ) -> Result<Driven> {
        let opened = Options::new().open_backend_driven(backend, driver);
        let (adapter, driver) = opened.during("dat_ia_open")?;
        let driver = match waiting {
            Waiting::Block => driver,
            Waiting::Poll { looks } => driver.polling(yield_after(looks)),
        };
        Ok((adapter, Self { driver, waiting }))
    }

    /// Drives the adapter until `future` is ready, then closes the adapter.
    pub(crate) fn run<F: Future>(self, future: F) -> F::Output {
        self.driver.run_until(future)
    }

    /// Drives the adapter until `future` is ready, for at most `longest`.
    ///
    /// # Errors
    /// The future, if it is not ready in time.
    pub(crate) fn wait_for<F: Future + Unpin>(
        &mut self,
        future: F,
        longest: Duration,
    ) -> std::result::Result<F::Output, F> {
        self.driver.run_for(longest, future)
    }

    /// Looks once for events, and lets the adapter do what is due.
    pub(crate) fn pass(&mut self) {
        self.driver.pass();
    }

    /// Waits in the core for an event of a dispatcher that the caller takes by itself.
    ///
    /// Returns `None` at the timeout or after a signal.
    ///
    /// # Errors
    /// - Operation: the adapter failed.
    pub(crate) fn next_event<B: HostBackend>(
        &mut self,
        core: &Core<B>,
        events: EvdId,
        longest: Duration,
    ) -> Result<Option<Event>> {
        let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let until = |now: Instant| Instant::from_micros(now.as_micros().saturating_add(longest));
        let looks = match self.waiting {
            Waiting::Poll { looks } => looks,
            Waiting::Block => 1,
        };
        if self.waiting == Waiting::Block
            && let Some(wait) = self.driver.sleeper()
        {
            let deadline = Some(until(wait.now()));
            return match core.evd_wait_until(events, 1, deadline, wait) {
                Ok(waited) => Ok(Some(waited.event)),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::TimeoutExpired | ErrorKind::InterruptedCall
                    ) =>
                {
                    Ok(None)
                }
                Err(error) => Err(Failure::operation("dat_evd_wait failed", error)),
            };
        }
        let mut deadline = None;
        loop {
            for _ in 0..looks {
                if let Some(event) = dequeue(core, events)? {
                    return Ok(Some(event));
                }
            }
            self.driver.pass();
            let now = ThreadWait::clock();
            if *deadline.get_or_insert_with(|| until(now)) <= now {
                return dequeue(core, events);
            }
            thread::yield_now();
        }
    }
}

/// Returns the core's adapter, for posts and dequeues that end no future.
///
/// # Errors
/// - Operation: the adapter has another backend.
#[expect(
    unsafe_code,
    reason = "a future for each operation would cost more than the operation"
)]
pub(crate) fn core<B: HostBackend>(adapter: &Adapter) -> Result<&Core<B>> {
    // SAFETY: the only callers are loads (`perf`), plain transfers (`rsm/plain.rs`) and the tour.
    // The first two post at endpoints with `Events`, with the number of a slot as the cookie and
    // segments of `ZoneWindow`s, and take events of these `Events` only. Loads also bind remote
    // regions that they created by the core to `ZoneWindow`s, whose bytes are atomics, and which
    // stay registered as long as they are bound. The tour queries, and makes other calls on
    // objects that it created by the core.
    let core = unsafe { adapter.ia::<B>() };
    core.ok_or_else(|| Failure::operation("reaching the core failed", "it has another backend"))
}

/// Takes the next event of a dispatcher, if one is queued.
///
/// # Errors
/// - Operation: the adapter failed.
#[inline]
pub(crate) fn dequeue<B: HostBackend>(core: &Core<B>, events: EvdId) -> Result<Option<Event>> {
    match core.evd_dequeue(events) {
        Ok(event) => Ok(Some(event)),
        Err(error) if error.kind() == ErrorKind::QueueEmpty => Ok(None),
        Err(error) => Err(Failure::operation("dat_evd_dequeue failed", error)),
    }
}

/// Returns a function that lets other programs run once in so many calls.
pub(crate) fn yield_after(looks: u32) -> impl Fn() + Send + Sync + 'static {
    let empty = AtomicU32::new(0);
    move || {
        // Of calls at the same time some may not be counted.
        let count = empty.load(Ordering::Relaxed) + 1;
        let is_enough = count >= looks;
        empty.store(if is_enough { 0 } else { count }, Ordering::Relaxed);
        if is_enough {
            thread::yield_now();
        }
    }
}
