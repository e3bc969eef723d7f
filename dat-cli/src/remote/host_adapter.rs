//! Adapters of `dat-host` on the devices of this program.

use std::sync::Arc;
use std::thread;

use dat_core::event::Wait;
use dat_host::{Adapter, Device, Driver, Error, Options, Ringing};

use super::open_adapter::Waiting;
use super::transport::{Carrier, Transport};
use crate::failure::{Failure, Result};
use crate::host::{self, HostBackend};
use crate::perf::Counters;

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

/// Opens a device; a thread of the adapter sleeps or polls for its events.
///
/// # Errors
/// - Operation: the device cannot be opened, or no thread can be started.
pub(crate) fn open<T: Transport>(device: &Carrier, waiting: Waiting) -> Result<Adapter> {
    // The thread is woken by the ring.
    let (backend, _) = T::open(device)?;
    let ringing = Ringing::default();
    T::ring(device, &backend, &ringing)?;
    on(backend, ringing, waiting)
}

/// Opens an adapter on a backend; a thread of its own sleeps or polls for its events.
///
/// # Errors
/// - Operation: the adapter cannot be opened, or no thread can be started.
pub(crate) fn on(
    backend: impl SharedBackend,
    device: impl Device,
    waiting: Waiting,
) -> Result<Adapter> {
    let options = Options::new();
    let looks = match waiting {
        Waiting::Block => return options.open_backend(backend, device).map_err(not_opened),
        Waiting::Poll { looks } => looks,
    };
    let opened = options.open_backend_driven(backend, device);
    let (adapter, driver) = opened.map_err(not_opened)?;
    // The thread ends when the adapter is closed.
    thread::Builder::new()
        .spawn(move || driver.poll_on_thread(yield_after(looks)))
        .map_err(|error| Failure::operation("starting a thread failed", error))?;
    Ok(adapter)
}

fn not_opened(error: Error) -> Failure {
    match error {
        Error::Refused(error) => host::not_opened(error),
        error => Failure::operation("opening the adapter failed", error),
    }
}

/// Returns a function that lets other programs run once in so many calls.
fn yield_after(looks: u32) -> impl FnMut() {
    let mut empty = 0_u32;
    move || {
        empty += 1;
        if empty >= looks {
            empty = 0;
            thread::yield_now();
        }
    }
}

/// An adapter and its driver.
pub(crate) type Driven = (Adapter, Drive);

/// The driver of an adapter, and how its thread waits.
pub(crate) struct Drive {
    driver: Driver,
    wait: Box<dyn Wait + Send>,
    waiting: Waiting,
}

impl Drive {
    /// Opens a device that the caller drives; returns a reader of its counts, too, if it has one.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    pub(crate) fn open<T: Transport>(
        device: &Carrier,
        waiting: Waiting,
    ) -> Result<(Driven, Option<Arc<Counters>>)> {
        let (backend, wait) = T::open(device)?;
        let counters = T::counters(&backend);
        // The thread that drives sleeps on the device itself, so nothing rings.
        let opened = Self::on(backend, Ringing::default(), wait, waiting)?;
        Ok((opened, counters))
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
        let (adapter, driver) = opened.map_err(not_opened)?;
        let this = Self {
            driver,
            wait: Box::new(wait),
            waiting,
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
}
