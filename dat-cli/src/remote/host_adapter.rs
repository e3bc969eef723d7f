//! Adapters of `dat-host` on the devices of this program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dat_core::event::{Event, ThreadWait, Wait};
use dat_core::id::EvdId;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_core::{ErrorKind, Ia};
use dat_host::{Adapter, Device, Driver, Options, Ringing};

use super::transport::{Carrier, RefusedSends, Transport};
use crate::failure::{During, Failure, Result};
use crate::host::{self, HostBackend};
use crate::perf::Counters;

/// The way to wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The thread sleeps.
    Block,
    /// The thread polls, and yields after `looks` empty polls.
    Poll { looks: u32 },
}

/// A backend whose adapters threads share.
pub(crate) trait SharedBackend:
    HostBackend<
        CompletionQueue: Send,
        SendQueue: Send,
        ReceiveQueue: Send,
        SharedReceiveQueue: Send,
    > + Send
{
}

impl<B> SharedBackend for B where
    B: HostBackend<
            CompletionQueue: Send,
            SendQueue: Send,
            ReceiveQueue: Send,
            SharedReceiveQueue: Send,
        > + Send
{
}

/// An adapter and its driver.
pub(crate) type Driven = (Adapter, Drive);

/// The core's adapter of a device, for measurements.
pub(crate) type Core<B> = Ia<'static, B, HostLock>;

/// The driver of an adapter, and how its thread waits.
pub(crate) struct Drive {
    driver: Driver,
    wait: Box<dyn Wait + Send>,
    waiting: Waiting,
    /// Reader of the counts of the device, if it has any.
    pub(crate) counters: Option<Arc<Counters>>,
    /// Reader of the sends that the system refuses, if the device tells them.
    refused_sends: Option<Arc<RefusedSends>>,
}

impl Drive {
    /// Opens a device that the caller drives.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    pub(crate) fn open<T: Transport>(device: &Carrier, waiting: Waiting) -> Result<Driven> {
        let (backend, wait) = T::open(device)?;
        let counters = T::counters(&backend);
        let refused_sends = T::refused_sends(&backend);
        // The thread that drives sleeps on the device itself, so nothing rings.
        let (adapter, drive) = Self::on(backend, Ringing::default(), wait, waiting)?;
        let drive = Self {
            counters,
            refused_sends,
            ..drive
        };
        Ok((adapter, drive))
    }

    /// Opens an adapter on a backend; the caller drives it.
    ///
    /// # Errors
    /// - Operation: the adapter cannot be opened.
    pub(crate) fn on(
        backend: impl SharedBackend,
        device: impl Device,
        wait: impl Wait + Send + 'static,
        waiting: Waiting,
    ) -> Result<Driven> {
        let opened = Options::new().open_backend_driven(backend, device);
        Self::over(opened, wait, waiting)
    }

    /// Takes the driver of an adapter that was opened.
    ///
    /// # Errors
    /// - Operation: it could not be opened.
    pub(crate) fn over(
        opened: dat_host::Result<(Adapter, Driver)>,
        wait: impl Wait + Send + 'static,
        waiting: Waiting,
    ) -> Result<Driven> {
        let (adapter, driver) = opened.during("dat_ia_open")?;
        let this = Self {
            driver,
            wait: Box::new(wait),
            waiting,
            counters: None,
            refused_sends: None,
        };
        Ok((adapter, this))
    }

    /// Drives the adapter until `future` is ready, then closes the adapter.
    pub(crate) fn run<F: Future>(mut self, future: F) -> F::Output {
        match self.waiting {
            Waiting::Block => self.driver.block_on(&mut *self.wait, future),
            Waiting::Poll { looks } => self.driver.poll_until(future, yield_after(looks)),
        }
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
        let Self { driver, wait, .. } = self;
        match self.waiting {
            Waiting::Block => driver.block_on_timeout(&mut **wait, future, longest),
            Waiting::Poll { looks } => driver.poll_timeout(future, longest, yield_after(looks)),
        }
    }

    /// Waits in the core for an event of a dispatcher that the caller takes by itself.
    ///
    /// Returns `None` at the timeout or after a signal.
    ///
    /// # Errors
    /// - Operation: the adapter failed.
    pub(crate) fn next_event<B: SharedBackend>(
        &mut self,
        core: &Core<B>,
        events: EvdId,
        longest: Duration,
    ) -> Result<Option<Event>> {
        let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let until = |now: Instant| Instant::from_micros(now.as_micros().saturating_add(longest));
        let looks = match self.waiting {
            Waiting::Poll { looks } => looks,
            Waiting::Block => {
                let deadline = Some(until(self.wait.now()));
                let waited = core.evd_wait_until(events, 1, deadline, &mut *self.wait);
                return match waited {
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
        };
        let mut deadline = None;
        loop {
            for _ in 0..looks {
                if let Some(event) = host::dequeue(core, events)? {
                    return Ok(Some(event));
                }
            }
            self.driver.pass();
            let now = ThreadWait::clock();
            if *deadline.get_or_insert_with(|| until(now)) <= now {
                return host::dequeue(core, events);
            }
            thread::yield_now();
        }
    }

    /// Returns the number of connections that peers refused because they have no room.
    pub(crate) fn refused_without_room(&self) -> u64 {
        let counts = self.counters.as_ref().map(|counters| counters());
        let count = counts.into_iter().flatten();
        let mut count = count.filter(|(name, _)| *name == "refused_without_room");
        count.next().map_or(0, |(_, count)| count)
    }

    /// Returns the error of a send that the system refused since the last call, if any.
    pub(crate) fn refused_send(&self) -> Option<io::Error> {
        self.refused_sends.as_ref().and_then(|refused| refused())
    }

    /// Returns true if the thread polls instead of sleeping.
    pub(crate) fn polls(&self) -> bool {
        matches!(self.waiting, Waiting::Poll { .. })
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
pub(crate) fn core<B: SharedBackend>(adapter: &Adapter) -> Result<&Core<B>> {
    // SAFETY: the only callers are loads (`load.rs`), plain transfers (`rsm/plain.rs`) and the tour.
    // The first two post at endpoints with `Events`, with the number of a slot as the cookie and
    // segments of `ZoneWindow`s, and take events of these `Events` only. The tour queries, and makes
    // other calls on objects that it created by the core.
    let core = unsafe { adapter.ia::<B>() };
    core.ok_or_else(|| Failure::operation("reaching the core failed", "it has another backend"))
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
