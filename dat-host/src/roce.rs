//! RoCEv2 in software, at an address of this host.

use std::net::{IpAddr, SocketAddr};

use backend_roce::{RoceBackend, RoceOptions};

use crate::error::{Error, Result};
use crate::ringing::Ringing;

/// Form of the device in an address.
const FORM: &str = "`roce://IP` or `roce://IP?udp=PORT`";

/// Parses `IP`, `[IPv6]`, `localhost`, each with `?udp=PORT` or not.
fn parse(name: &str) -> Option<SocketAddr> {
    let (host, port) = match name.split_once('?') {
        Some((host, option)) => (host, option.strip_prefix("udp=")?.parse().ok()?),
        None => (name, 0),
    };
    let host = match host {
        "localhost" => "127.0.0.1",
        host => host.trim_start_matches('[').trim_end_matches(']'),
    };
    let address: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(address, port))
}

/// Opens an adapter at an address of this host.
///
/// # Errors
/// - [`Error::Malformed`]: `name` is no IP address.
/// - [`Error::System`]: the host does not have the address, or the UDP port is taken.
pub(crate) fn open(name: &str) -> Result<(RoceBackend, Ringing)> {
    let address = parse(name).ok_or(Error::Malformed(FORM))?;
    let options = RoceOptions::random().map_err(Error::System)?;
    let backend = RoceBackend::open(address, options).map_err(Error::System)?;
    let device = Ringing::default();
    backend.on_event(device.ring());
    Ok((backend, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_adapters_are_ip_addresses_with_a_port() {
        let parsed = |name| parse(name).map(|address| address.to_string());
        assert_eq!(parsed("10.0.0.1").as_deref(), Some("10.0.0.1:0"));
        assert_eq!(
            parsed("localhost?udp=4791").as_deref(),
            Some("127.0.0.1:4791")
        );
        assert_eq!(parsed("[::1]?udp=5").as_deref(), Some("[::1]:5"));
        for wrong in [
            "",
            "eth",
            "10.0.0.1:5",
            "::1?tcp=5",
            "::1?udp=",
            "::1?udp=70000",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
