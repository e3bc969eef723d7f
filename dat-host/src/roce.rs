//! RoCEv2 in software, at an address of this host.

use backend_roce::{RoceBackend, RoceOptions, parse_address};

use crate::error::{Error, Result};
use crate::ringing::Ringing;

/// Form of the device in an address.
const FORM: &str = "`roce://IP` or `roce://INTERFACE`, with `?udp=PORT` or not";

/// Opens an adapter at an address of this host.
///
/// # Errors
/// - [`Error::Malformed`]: `name` has another form than an address.
/// - [`Error::System`]: the host has no such address or interface, or the UDP port is taken.
pub(crate) fn open(name: &str) -> Result<(RoceBackend, Ringing)> {
    let address = parse_address(name).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::Malformed(FORM),
        _ => Error::System(error),
    })?;
    let mut options = RoceOptions::random().map_err(Error::System)?;
    // For ever: a sender waits for a receive, as on the networks of this process.
    options.not_ready_retries = 7;
    let backend = RoceBackend::open(address, options).map_err(Error::System)?;
    let device = Ringing::default();
    backend.on_event(device.ring());
    Ok((backend, device))
}
