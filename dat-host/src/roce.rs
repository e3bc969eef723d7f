//! RoCEv2 in software, at an address of this host.

use backend_roce::{RoceBackend, RoceOptions, parse_address};

use crate::error::{Error, Result};
use crate::ringing::Ringing;

/// Form of the device in an address.
const FORM: &str = "`roce://IP` or `roce://IP?udp=PORT`";

/// Opens an adapter at an address of this host.
///
/// # Errors
/// - [`Error::Malformed`]: `name` is no IP address.
/// - [`Error::System`]: the host does not have the address, or the UDP port is taken.
pub(crate) fn open(name: &str) -> Result<(RoceBackend, Ringing)> {
    let address = parse_address(name).ok_or(Error::Malformed(FORM))?;
    let options = RoceOptions::random().map_err(Error::System)?;
    let backend = RoceBackend::open(address, options).map_err(Error::System)?;
    let device = Ringing::default();
    backend.on_event(device.ring());
    Ok((backend, device))
}
