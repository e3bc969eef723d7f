//! Adapters of `dat-host` on the devices of this program.

use std::sync::Arc;
use std::thread;

use dat_host::{Adapter, Device, Error, Options, Ringing};

use super::open_adapter::Waiting;
use super::transport::{Carrier, Transport};
use crate::failure::{Failure, Result};
use crate::host::{self, HostBackend};
use crate::perf::Counters;

/// Opens a device; returns its adapter, and a reader of its counts if it has one.
///
/// # Errors
/// - Operation: the device cannot be opened, or no thread can be started.
pub(crate) fn open<T: Transport>(
    device: &Carrier,
    waiting: Waiting,
) -> Result<(Adapter, Option<Arc<Counters>>)> {
    // The wait of a thread is not needed.
    let (backend, _) = T::open(device)?;
    let counters = T::counters(&backend);
    let ringing = Ringing::default();
    T::ring(device, &backend, &ringing)?;
    Ok((on(backend, ringing, waiting)?, counters))
}

/// Opens an adapter on a backend; a thread of its own sleeps or polls for its events.
///
/// # Errors
/// - Operation: the adapter cannot be opened, or no thread can be started.
pub(crate) fn on<B>(backend: B, device: impl Device, waiting: Waiting) -> Result<Adapter>
where
    B: HostBackend<
            CompletionQueue: Send,
            SendQueue: Send,
            ReceiveQueue: Send,
            SharedReceiveQueue: Send,
        > + Send,
{
    let failed = |error| match error {
        Error::Refused(error) => host::not_opened(error),
        error => Failure::operation("opening the adapter failed", error),
    };
    let options = Options::new();
    let looks = match waiting {
        Waiting::Block => return options.open_backend(backend, device).map_err(failed),
        Waiting::Poll { looks } => looks,
    };
    let opened = options.open_backend_driven(backend, device);
    let (adapter, driver) = opened.map_err(failed)?;
    let mut empty = 0_u32;
    let idle = move || {
        empty += 1;
        if empty >= looks {
            empty = 0;
            thread::yield_now();
        }
    };
    // The thread ends when the adapter is closed.
    thread::Builder::new()
        .spawn(move || driver.poll_on_thread(idle))
        .map_err(|error| Failure::operation("starting a thread failed", error))?;
    Ok(adapter)
}
