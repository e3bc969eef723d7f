//! Devices that reach other processes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use dat_core::attributes::IaAddress;
use dat_core::backend::HostBackend;

use crate::failure::{Failure, FailureKind, Result};
use crate::limits;
use crate::peer::Peer;

/// A device to open.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    pub(crate) name: String,
    /// Addresses of this host that it has.
    pub(crate) addresses: Vec<IaAddress>,
}

impl Carrier {
    /// Returns the IP addresses.
    pub(crate) fn ip_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().filter_map(|own| own.socket_address())
    }

    /// Returns the IP addresses as text.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.ip_addresses().map(text).collect()
    }

    /// Returns the device for the other end in this process.
    ///
    /// A UDP port that the name selects is that of the first end.
    pub(crate) fn other_end(&self) -> Self {
        let other = |own: &IaAddress| match own.socket_address() {
            Some(own) => IaAddress::from(without_port(own)),
            None => *own,
        };
        Self {
            name: self.name.clone(),
            addresses: self.addresses.iter().map(other).collect(),
        }
    }
}

/// Returns an address as text, without its port but with its interface.
pub(crate) fn text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        address => address.ip().to_string(),
    }
}

/// Returns the address with port 0, and with its interface.
fn without_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(0);
    address
}

/// Returns true if two addresses are the same, whatever their ports.
///
/// Each interface has link-local addresses of its own; no other address belongs to one.
pub(crate) fn is_same_ip(one: SocketAddr, other: SocketAddr) -> bool {
    let interface = |address: SocketAddr| match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    };
    one.ip().to_canonical() == other.ip().to_canonical() && interface(one) == interface(other)
}

/// A kind of devices that reach other processes.
pub(crate) trait Transport: 'static {
    /// The backend.
    type Backend: HostBackend;
    /// The name of the backend in reports.
    const NAME: &'static str;
    /// The remedy if there is no device.
    const REMEDY: &'static str;

    /// Returns the named device, else the one with an address, else a usable one.
    ///
    /// # Errors
    /// - Operation: there is no such device.
    fn choose(name: Option<&str>, address: Option<SocketAddr>) -> Result<Carrier>;

    /// Opens a device.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    fn open(device: &Carrier) -> Result<Self::Backend>;
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

/// Returns an address of a device at which this process reaches it.
///
/// # Errors
/// - Operation: it has none.
pub(crate) fn first_address<T: Transport>(device: &Carrier) -> Result<IaAddress> {
    let first = device.addresses.first().copied().ok_or_else(|| {
        no_device::<T>(
            format!("cannot open the device {}", device.name),
            "its network interface has no address",
        )
    })?;
    // A device at all addresses of this host.
    let is_wildcard = |own: &SocketAddr| own.ip().is_unspecified();
    let wildcard = first.socket_address().filter(is_wildcard);
    Ok(wildcard.map_or(first, |own| {
        let loopback: IpAddr = match own.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        SocketAddr::new(loopback, own.port()).into()
    }))
}

/// Resolves a host; returns its addresses, at least one.
///
/// # Errors
/// - Operation: the host is not known.
/// - Usage: the address is not one of a host, or lacks its interface.
pub(crate) fn resolve(peer: &Peer) -> Result<Vec<SocketAddr>> {
    let failed = |why: String| Failure {
        kind: FailureKind::Operation,
        what: format!("cannot find the host {}", peer.host),
        why,
        remedy: "check the spelling, or use its IP address".into(),
    };
    let found = (peer.host.as_str(), peer.port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()).because(limits::descriptors()))?;
    let found: Vec<SocketAddr> = found.collect();
    let unusable = found.iter().find_map(|address| unusable(*address, peer));
    let usable = |address: &SocketAddr| self::unusable(*address, peer).is_none();
    let usable: Vec<SocketAddr> = found.iter().copied().filter(usable).collect();
    match (usable.is_empty(), unusable) {
        (false, _) => Ok(usable),
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(failed("it has no address".into())),
    }
}

/// Returns the failure of an address that is not the one of a host.
fn unusable(address: SocketAddr, peer: &Peer) -> Option<Failure> {
    let what = format!("cannot connect to {}", peer.host);
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Some(Failure::usage(
                what,
                "each network interface has its own link-local addresses",
                format!("write [{}%INTERFACE]:{}", peer.host, peer.port),
            ))
        }
        address if address.ip().is_multicast() || address.ip() == Ipv4Addr::BROADCAST => {
            Some(Failure::usage(
                what,
                "the address stands for many hosts",
                "use the address of one host",
            ))
        }
        _ => None,
    }
}

/// Runs `act` with each address in turn, until one is reached.
///
/// # Errors
/// - Those of `act` at the address that was reached.
/// - Operation: none was reached; the failure has the reason for each.
pub(crate) fn reach<R>(
    addresses: &[SocketAddr],
    mut act: impl FnMut(SocketAddr) -> Result<R>,
) -> Result<R> {
    let mut reasons: Vec<String> = Vec::new();
    let mut last = None;
    for address in addresses {
        match act(*address) {
            Err(failure) if failure.kind == FailureKind::Unreached => {
                reasons.push(format!("{}: {}", text(*address), failure.why));
                last = Some(failure);
            }
            done => return done,
        }
    }
    let none = || Failure::operation("cannot connect", "the host has no address");
    let failure = last.unwrap_or_else(none);
    Err(match reasons.len() {
        0 | 1 => failure,
        _ => Failure {
            why: reasons.join("; "),
            ..failure
        },
    })
}

/// Returns the local address of this host on the route to a peer, with its interface.
pub(crate) fn own_address(peer: SocketAddr) -> Option<SocketAddr> {
    let any: SocketAddr = if peer.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0; 16], 0).into()
    };
    // Connecting a UDP socket sends nothing; it only selects the route.
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(without_port(socket.local_addr().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: &str) -> Peer {
        Peer {
            host: host.into(),
            port: 7471,
        }
    }

    #[test]
    fn a_link_local_host_needs_its_interface() {
        let refused = resolve(&peer("fe80::1")).unwrap_err();
        assert_eq!(refused.remedy, "write [fe80::1%INTERFACE]:7471");
        assert_eq!(refused.kind, FailureKind::Usage);
        let named = resolve(&peer("fe80::1%1")).unwrap();
        assert!(matches!(named[..], [SocketAddr::V6(address)] if address.scope_id() == 1));
        assert!(resolve(&peer("fd09::1")).is_ok());
    }

    #[test]
    fn an_address_of_many_hosts_is_refused() {
        for host in ["224.0.0.1", "255.255.255.255", "ff02::1"] {
            let refused = resolve(&peer(host)).unwrap_err();
            assert!(
                refused.why.contains("many hosts"),
                "{host}: {}",
                refused.why
            );
            assert_eq!(refused.kind, FailureKind::Usage);
        }
    }

    #[test]
    fn addresses_are_told_with_their_interface() {
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert_eq!(text(address("[fe80::1%3]:5")), "fe80::1%3");
        assert_eq!(text(address("[::1]:5")), "::1");
        assert_eq!(text(address("127.0.0.1:5")), "127.0.0.1");
        for (one, other, same) in [
            ("[fe80::1%3]:5", "[fe80::1%3]:6", true),
            ("[fe80::1%3]:5", "[fe80::1%4]:5", false),
            ("[::1%3]:5", "[::1]:5", true),
            ("[::ffff:127.0.0.1]:5", "127.0.0.1:6", true),
            ("127.0.0.1:5", "127.0.0.2:5", false),
        ] {
            assert_eq!(
                is_same_ip(address(one), address(other)),
                same,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn each_address_is_tried_until_one_is_reached() {
        let all = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let unreached = |address: SocketAddr| Failure {
            kind: FailureKind::Unreached,
            what: "cannot connect".into(),
            why: format!("nobody at {}", address.port()),
            remedy: String::new(),
        };
        let mut tried = Vec::new();
        let reached = reach(&all, |address| {
            tried.push(address.port());
            match address.port() {
                2 => Ok("here"),
                _ => Err(unreached(address)),
            }
        });
        assert_eq!((reached, tried), (Ok("here"), vec![1, 2]));
        let failure = reach(&all, |address| Err::<(), _>(unreached(address))).unwrap_err();
        assert_eq!(
            failure.why,
            "127.0.0.1: nobody at 1; 127.0.0.1: nobody at 2; 127.0.0.1: nobody at 3"
        );
        let failure = reach(&all[..1], |address| Err::<(), _>(unreached(address))).unwrap_err();
        assert_eq!(failure.why, "nobody at 1");
        // Another failure is that of the address that was reached.
        let mut count = 0;
        let failed = reach(&all, |_| {
            count += 1;
            Err::<(), _>(Failure::operation("failed", "for another reason"))
        });
        assert_eq!((failed.is_err(), count), (true, 1));
    }
}
