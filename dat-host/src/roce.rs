//! RoCEv2 in software, at an address of this host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_roce::{RoceBackend, RoceDriver, RoceOptions, parse_address};
use dat_core::event::Wait;

use crate::bell::Bell;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ringing::Ringing;

/// Form of the device in an address.
const FORM: &str = "`roce://IP` or `roce://INTERFACE`, with \
    `?udp=PORT&keep-alive=SECONDS&mtu=256|512|1024|2048|4096` or a part of it";

/// The wake-ups of an adapter.
pub(crate) struct RoceDevice {
    driver: RoceDriver,
    ringing: Ringing,
    /// Set if a thread sleeps on the sockets, which then needs no ring.
    sleeps: Arc<AtomicBool>,
}

impl Device for RoceDevice {
    fn attach(&self, bell: &Bell) {
        self.ringing.attach(bell);
    }

    fn wait(&self) -> Option<Box<dyn Wait + Send>> {
        self.sleeps.store(true, Ordering::Relaxed);
        Some(Box::new(self.driver.wait()))
    }
}

/// Opens an adapter at an address of this host.
///
/// # Errors
/// - [`Error::Malformed`]: `name` has another form than an address.
/// - [`Error::System`]: the host has no such address or interface, or the UDP port is taken.
pub(crate) fn open(name: &str) -> Result<(RoceBackend, RoceDevice)> {
    let address = parse_address(name).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::Malformed(FORM),
        _ => Error::System(error),
    })?;
    let mut options = RoceOptions::random().map_err(Error::System)?;
    // For ever: a sender waits for a receive, as on the networks of this process.
    options.not_ready_retries = 7;
    address.apply_to(&mut options);
    let backend = RoceBackend::open(address.socket, options).map_err(Error::System)?;
    let ringing = Ringing::default();
    let sleeps = Arc::<AtomicBool>::default();
    let (ring, sleeping) = (ringing.ring(), Arc::clone(&sleeps));
    backend.on_event(move || {
        if !sleeping.load(Ordering::Relaxed) {
            ring();
        }
    });
    let device = RoceDevice {
        driver: backend.driver(),
        ringing,
        sleeps,
    };
    Ok((backend, device))
}
