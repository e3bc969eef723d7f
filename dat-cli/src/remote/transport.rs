//! Devices that reach other processes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_core::backend::HostBackend;
use dat_devices::{
    ByAddress, Cause, DeviceAddress, FabricOptions, Found, Network, OpenError, OpenErrorKind,
    Options, Visitor,
};

use super::device::{MOCK, scheme_of, with_backend};
use crate::arguments::{DeviceName, PathName};
use crate::failure::{Failure, FailureKind, Result};
use crate::limits::{self, Reached};
use crate::peer::Peer;

/// Silence of a peer after which its connection is probed, so that a peer that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A device to open.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    /// The scheme of its backend.
    pub(crate) scheme: &'static str,
    /// The name in reports.
    pub(crate) name: String,
    /// The address that opens it.
    address: DeviceAddress,
    /// Addresses that it has, of this host.
    pub(crate) addresses: Vec<IaAddress>,
    /// The network of the mock.
    network: Option<Network>,
}

impl Carrier {
    /// Returns an adapter of a new network of the mock, whose other adapters are other ends.
    pub(crate) fn mock(options: FabricOptions) -> Self {
        Self::on_mock(Network::new(options), "end")
    }

    /// Returns the adapter with a name on a network of the mock.
    pub(crate) fn on_mock(network: Network, name: &str) -> Self {
        Self {
            scheme: MOCK,
            name: MOCK.into(),
            address: DeviceAddress::new(MOCK, name),
            addresses: vec![network.address(name)],
            network: Some(network),
        }
    }

    /// Returns the network of the mock, if the device is on one.
    pub(crate) const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Opens the device, and calls `visitor` with its backend.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    pub(crate) fn open<V: Visitor>(&self, visitor: V) -> Result<V::Output> {
        let mut options = Options::new();
        options.keep_alive = Some(KEEP_ALIVE);
        options.network = self.network.clone();
        if with_backend!(self.scheme, B => B::PINS_MEMORY) == Some(true) {
            limits::opens_device();
        }
        let opened = dat_devices::open(&self.address, &options, visitor);
        opened.map_err(|error| not_opened(&self.address, &self.name, &error))
    }

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
        if let Some(network) = &self.network {
            return Self::on_mock(network.clone(), "other end");
        }
        let other = |own: &IaAddress| match own.socket_address() {
            Some(own) => IaAddress::from(without_port(own)),
            None => *own,
        };
        let (host, options) = match self.address.device().split_once('?') {
            Some((host, options)) => (host, options),
            None => (self.address.device(), ""),
        };
        let others = options
            .split('&')
            .filter(|option| !option.starts_with("udp="));
        let others: Vec<&str> = others.filter(|option| !option.is_empty()).collect();
        let device = match others.is_empty() {
            true => host.to_owned(),
            false => format!("{host}?{}", others.join("&")),
        };
        Self {
            address: DeviceAddress::new(self.scheme, &device),
            addresses: self.addresses.iter().map(other).collect(),
            ..self.clone()
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

/// Returns the named device, else the one with an address, else a usable one.
///
/// # Errors
/// - Usage: the name is malformed, or names another way than `--path`, or this build does not
///   support the device.
/// - Operation: there is no such device.
pub(crate) fn choose(named: &DeviceName, address: Option<SocketAddr>) -> Result<Carrier> {
    let mut chosen = choose_any(named.name(), address)?;
    let Some(path) = named.path.map(PathName::name) else {
        return Ok(chosen);
    };
    let refused = |why, remedy| Err(Failure::usage("--path cannot be used here", why, remedy));
    if chosen.scheme != "roce" {
        return refused("only roce has a choice of ways", "remove --path");
    }
    if chosen.address.device().contains("path=") {
        return refused("the address has a path, too", "remove one of them");
    }
    chosen.address = chosen.address.with_option("path", path);
    Ok(chosen)
}

/// Returns the named device, else the one with an address, else a usable one; whatever its way.
fn choose_any(name: Option<&str>, address: Option<SocketAddr>) -> Result<Carrier> {
    let scheme = scheme_of(name)?;
    let named = name.map(DeviceAddress::from_argument);
    if let Some(named) = named.filter(|named| !named.device().is_empty()) {
        return find(scheme, named);
    }
    let what = "no usable RDMA device";
    let found = devices(scheme);
    let found = found.map_err(|error| without_device(scheme, what.into(), &error.to_string()))?;
    if found.iter().any(is_anywhere) {
        let address = address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
        let own = DeviceAddress::new(scheme, &text(address));
        return Ok(carrier(scheme, own.to_string(), own, vec![address.into()]));
    }
    let has = |device: &&Found| {
        let mut own = device
            .addresses
            .iter()
            .filter_map(|own| own.socket_address());
        own.any(|own| address.is_some_and(|address| is_same_ip(own, address)))
    };
    let position = found.iter().find(has);
    let chosen = position.or_else(|| found.iter().find(|device| is_usable(device)));
    let Some(chosen) = chosen.cloned() else {
        let why = match found.is_empty() {
            true => "this host has no RDMA device",
            false => "no RDMA device is up and has an address",
        };
        return Err(without_device(scheme, what.into(), why));
    };
    Ok(carrier(
        scheme,
        chosen.name,
        chosen.address,
        chosen.addresses,
    ))
}

/// Returns the device with a name.
fn find(scheme: &'static str, named: DeviceAddress) -> Result<Carrier> {
    let what = format!("cannot open the device {named}");
    if named.device().contains("keep-alive=") {
        return Err(Failure::usage(
            what,
            "this program has its own time of keep-alives, 10 s",
            "remove keep-alive from the address",
        ));
    }
    let addresses = with_backend!(scheme, B => B::addresses(named.device()));
    let addresses = addresses.unwrap_or(Ok(Vec::new()));
    let addresses = addresses.map_err(|error| match error.cause() {
        Cause::System(_) if has_wrong_options(&named) => Failure::usage(
            what,
            error.to_string(),
            "correct the options after `?`, or leave them out",
        ),
        Cause::System(_) => Failure {
            kind: FailureKind::Usage,
            ..no_device(scheme, what, &error.to_string())
        },
        _ => not_opened(&named, named.device(), &error),
    })?;
    // A device that stands for all addresses is named by one of them.
    let name = match devices(scheme).is_ok_and(|found| found.iter().any(is_anywhere)) {
        true => named.to_string(),
        false => named.device().to_owned(),
    };
    Ok(carrier(scheme, name, named, addresses))
}

/// Returns true if a name would be taken without its options.
fn has_wrong_options(named: &DeviceAddress) -> bool {
    let Some((host, _)) = named.device().split_once('?') else {
        return false;
    };
    with_backend!(named.scheme(), B => B::addresses(host)).is_some_and(|found| found.is_ok())
}

/// Returns the devices of a backend.
pub(crate) fn devices(scheme: &str) -> std::result::Result<Vec<Found>, OpenError> {
    with_backend!(scheme, B => B::devices()).unwrap_or(Ok(Vec::new()))
}

fn carrier(
    scheme: &'static str,
    name: String,
    address: DeviceAddress,
    addresses: Vec<IaAddress>,
) -> Carrier {
    Carrier {
        scheme,
        name,
        address,
        addresses,
        network: None,
    }
}

/// Returns true for a device that stands for all addresses of this host.
pub(crate) fn is_anywhere(device: &Found) -> bool {
    device.address.device().is_empty()
}

/// A device is usable if its port is up and has an address.
pub(crate) fn is_usable(device: &Found) -> bool {
    is_anywhere(device) || device.is_active && !device.addresses.is_empty()
}

/// Returns the failure of a device that cannot be opened.
pub(crate) fn not_opened(address: &DeviceAddress, name: &str, error: &OpenError) -> Failure {
    let what = format!("cannot open the device {name}");
    let scheme = address.scheme();
    match (error.cause(), error.kind()) {
        (Cause::System(_), OpenErrorKind::AddressNotThere) => {
            no_device(scheme, what, "this host does not have the address")
        }
        (Cause::System(error), _) => Failure::system(what, error),
        (_, OpenErrorKind::Resources) => {
            without_device(scheme, what, &error.to_string()).because(limits::locked_memory())
        }
        _ => without_device(scheme, what, &error.to_string()),
    }
}

/// Builds the failure of a missing device, or of the descriptor limit that hides it.
///
/// Without free descriptors the libraries find no device at all.
fn without_device(scheme: &str, what: String, why: &str) -> Failure {
    let failure = no_device(scheme, what, why);
    match limits::descriptors() {
        None => failure,
        Some(Reached { why, remedy }) => Failure {
            why,
            remedy: remedy.into(),
            ..failure
        },
    }
}

/// Returns the failure of a device.
pub(crate) fn no_device(scheme: &str, what: String, why: &str) -> Failure {
    let remedy = match scheme {
        "roce" => {
            "name an IP address of this host, such as `roce://127.0.0.1`; `dat devices` lists them"
        }
        _ => {
            "list devices with `dat devices`; without hardware, use `--device roce`, or create a \
            soft-RoCE device on a network interface (as root): `modprobe rdma_rxe`, then `rdma link \
            add rxe0 type rxe netdev eth0`; see docs/verbs.md"
        }
    };
    Failure {
        kind: FailureKind::Operation,
        what,
        why: why.into(),
        remedy: remedy.into(),
    }
}

/// Returns an address of a device at which this process reaches it.
///
/// # Errors
/// - Operation: it has none.
pub(crate) fn first_address(device: &Carrier) -> Result<IaAddress> {
    let first = device.addresses.first().copied().ok_or_else(|| {
        no_device(
            device.address.scheme(),
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

    /// A UDP port belongs to one of two ends; the other options to both.
    #[test]
    fn the_other_end_has_another_port() {
        for (device, other) in [
            ("127.0.0.1?udp=5", "127.0.0.1"),
            ("127.0.0.1?udp=5&mtu=256", "127.0.0.1?mtu=256"),
            ("fe80::1%eth0", "fe80::1%eth0"),
        ] {
            let address = DeviceAddress::new("roce", device);
            let carrier = carrier("roce", String::new(), address, Vec::new());
            assert_eq!(carrier.other_end().address.device(), other);
        }
    }

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
