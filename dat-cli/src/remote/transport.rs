//! Devices that reach other processes.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use dat_core::attributes::IaAddress;
use dat_core::event::Wait;

use super::host_adapter::SharedBackend;
use crate::failure::{Failure, FailureKind, Result};
use crate::peer::Peer;
use crate::perf::Counters;

/// A device to open.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    pub(crate) name: String,
    /// Addresses of this host that it has.
    pub(crate) addresses: Vec<IaAddress>,
}

impl Carrier {
    /// Returns the IP addresses as text.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.addresses
            .iter()
            .filter_map(|own| own.socket_address())
            .map(|own| own.ip().to_string())
            .collect()
    }
}

/// A kind of devices that reach other processes.
pub(crate) trait Transport: 'static {
    /// The backend.
    type Backend: SharedBackend;
    /// The wait of a thread for events.
    type Wait: Wait + Send + 'static;

    /// The name of the backend in reports.
    const NAME: &'static str;
    /// The remedy if there is no device.
    const REMEDY: &'static str;

    /// Returns the named device, else the one with an address, else a usable one.
    ///
    /// # Errors
    /// - Operation: there is no such device.
    fn choose(name: Option<&str>, address: Option<IpAddr>) -> Result<Carrier>;

    /// Opens a device.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    fn open(device: &Carrier) -> Result<(Self::Backend, Self::Wait)>;

    /// Lets the backend of an open device call `event` when it has events.
    ///
    /// # Errors
    /// - Operation: the system lacks resources.
    fn on_event(
        device: &Carrier,
        backend: &Self::Backend,
        event: impl Fn() + Send + Sync + 'static,
    ) -> Result<()>;

    /// Returns a reader of the counts of an open device; `None` if it has none.
    fn counters(backend: &Self::Backend) -> Option<Arc<Counters>> {
        let _ = backend;
        None
    }
}

/// Returns the failure of a device.
pub(crate) fn no_device<T: Transport>(what: String, why: &str) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what,
        why: why.into(),
        remedy: T::REMEDY.into(),
    }
}

/// Returns the first address of a device.
///
/// # Errors
/// - Operation: it has none.
pub(crate) fn first_address<T: Transport>(device: &Carrier) -> Result<IaAddress> {
    device.addresses.first().copied().ok_or_else(|| {
        no_device::<T>(
            format!("cannot open the device {}", device.name),
            "its network interface has no address",
        )
    })
}

/// Resolves a host; returns its first address.
pub(crate) fn resolve(peer: &Peer) -> Result<SocketAddr> {
    let failed = |why: String| Failure {
        kind: FailureKind::Operation,
        what: format!("cannot find the host {}", peer.host),
        why,
        remedy: "check the spelling, or use its IP address".into(),
    };
    let mut addresses = (peer.host.as_str(), peer.port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?;
    match addresses.next() {
        None => Err(failed("it has no address".into())),
        Some(SocketAddr::V6(address))
            if address.ip().is_unicast_link_local() && address.scope_id() == 0 =>
        {
            Err(Failure {
                remedy: format!("write [{}%INTERFACE]:{}", peer.host, peer.port),
                ..failed("each network interface has its own link-local addresses".into())
            })
        }
        Some(address) => Ok(address),
    }
}

/// Returns the local address of this host on the route to a peer.
pub(crate) fn own_address(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0; 16], 0).into()
    };
    // Connecting a UDP socket sends nothing; it only selects the route.
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_host_needs_its_interface() {
        let peer = |host: &str| Peer {
            host: host.into(),
            port: 7471,
        };
        let refused = resolve(&peer("fe80::1")).unwrap_err();
        assert_eq!(refused.remedy, "write [fe80::1%INTERFACE]:7471");
        let named = resolve(&peer("fe80::1%1")).unwrap();
        assert!(matches!(named, SocketAddr::V6(address) if address.scope_id() == 1));
        assert!(resolve(&peer("fd09::1")).is_ok());
    }
}
