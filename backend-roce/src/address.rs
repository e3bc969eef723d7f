//! Addresses of this host, and their text.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::num::NonZero;
use core::str::FromStr;
use core::time::Duration;
use std::io;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::options::{PathChoice, RoceOptions};
use crate::proto::PathMtu;

/// Returns the IP addresses of this host at which adapters can be opened.
///
/// Link-local addresses, which need a scope, are left out.
pub fn addresses() -> Vec<IpAddr> {
    let Ok(all) = getifaddrs() else {
        return Vec::new();
    };
    all.filter_map(|one| address_of(&one))
        .map(|address| address.ip())
        .filter(|ip| !is_link_local(*ip))
        .collect()
}

/// Returns the wildcard address: of both families, or of IPv4 on a host without IPv6.
#[must_use]
pub fn wildcard() -> SocketAddr {
    let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    // A system may keep sockets of IPv6 from IPv4 (`net.ipv6.bindv6only`): connecting tells.
    let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), 9);
    let takes_both =
        std::net::UdpSocket::bind(both).is_ok_and(|socket| socket.connect(mapped).is_ok());
    if takes_both {
        both
    } else {
        SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)
    }
}

/// Returns the address that an adapter with all addresses of this host tells to others.
///
/// It is the first one of an interface that is not the loop-back interface. `family` is the
/// wildcard address of the adapter; the one of IPv6 stands for both families, IPv4 first.
pub(crate) fn representative(family: IpAddr) -> IpAddr {
    let all = addresses();
    let v4 = all.iter().find(|ip| ip.is_ipv4() && !ip.is_loopback());
    let v6 = all.iter().find(|ip| ip.is_ipv6() && !ip.is_loopback());
    match family {
        IpAddr::V4(_) => v4.copied().unwrap_or(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(_) => v4.or(v6).copied().unwrap_or_else(|| {
            let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
            if all.contains(&v4) {
                v4
            } else {
                Ipv6Addr::LOCALHOST.into()
            }
        }),
    }
}

/// Address of an adapter, with the options that its text can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoceAddress {
    /// Address of the sockets. Port 0 stands for 4791, or a free one if that is taken.
    pub socket: SocketAddr,
    /// Silence of a peer after which an idle connection is probed (ROCE-53).
    pub keep_alive: Option<Duration>,
    /// Largest path MTU that the adapter proposes and accepts (ROCE-177).
    pub mtu: Option<PathMtu>,
    /// Way of the connections (ROCE-250).
    pub path: Option<PathChoice>,
}

impl RoceAddress {
    /// Sets the options that the address gives, and keeps the others.
    pub const fn apply_to(&self, options: &mut RoceOptions) {
        if self.keep_alive.is_some() {
            options.keep_alive = self.keep_alive;
        }
        if let Some(mtu) = self.mtu {
            options.mtu = mtu;
        }
        if let Some(path) = self.path {
            options.path = path;
        }
    }
}

impl From<SocketAddr> for RoceAddress {
    fn from(socket: SocketAddr) -> Self {
        Self {
            socket,
            keep_alive: None,
            mtu: None,
            path: None,
        }
    }
}

/// Parses the address of an adapter.
///
/// The forms are `IP`, `[IPv6]`, `IPv6%INTERFACE` for a link-local address, `localhost`, or the
/// name of an interface. `0.0.0.0` stands for all IPv4 addresses of this host, `::` for all
/// addresses.
///
/// Options may follow: `?udp=PORT`, `?keep-alive=SECONDS`, `?mtu=BYTES`, `?path=WAY`, or several of
/// them with `&` between them. BYTES is 256, 512, 1024, 2048 or 4096. WAY is `any`, `local` or
/// `packets`.
///
/// # Errors
/// - `InvalidInput`: the text has another form; the error names the options and their values.
/// - `AddrNotAvailable`: no interface has the name, or it has no address.
pub fn parse_address(text: &str) -> io::Result<RoceAddress> {
    let (host, options) = match text.split_once('?') {
        Some((host, options)) => (host, Some(options)),
        None => (text, None),
    };
    let (mut port, mut keep_alive, mut mtu, mut path) = (None, None, None, None);
    for option in options.into_iter().flat_map(|options| options.split('&')) {
        let value = option.split_once('=');
        let known = match value {
            Some(("udp", value)) => value
                .parse()
                .is_ok_and(|value| port.replace(value).is_none()),
            Some(("keep-alive", value)) => value.parse().is_ok_and(|seconds: NonZero<u32>| {
                let period = Duration::from_secs(seconds.get().into());
                keep_alive.replace(period).is_none()
            }),
            Some(("mtu", value)) => PathMtu::ALL
                .into_iter()
                .find(|mtu| mtu.bytes().to_string() == value)
                .is_some_and(|value| mtu.replace(value).is_none()),
            Some(("path", value)) => value
                .parse()
                .is_ok_and(|value| path.replace(value).is_none()),
            _ => false,
        };
        if !known {
            return Err(invalid(
                "the options of an address are `udp=PORT`, `keep-alive=SECONDS`, `mtu=BYTES` and \
                `path=WAY`, each at most once; BYTES is 256, 512, 1024, 2048 or 4096, and WAY is \
                `local` (shared memory), `packets` (UDP) or `any` (shared memory where it can be \
                had)",
            ));
        }
    }
    let socket = parse_host(host, port.unwrap_or(0))?;
    Ok(RoceAddress {
        socket,
        keep_alive,
        mtu,
        path,
    })
}

impl FromStr for PathChoice {
    type Err = io::Error;

    /// Parses the WAY of an address.
    fn from_str(name: &str) -> io::Result<Self> {
        match name {
            "any" => Ok(Self::Any),
            "local" => Ok(Self::Local),
            "packets" => Ok(Self::Packets),
            _ => Err(invalid("the ways are `any`, `local` and `packets`")),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

/// Parses `IP`, `[IPv6]` or `IPv6%INTERFACE`; the port is 0.
///
/// # Errors
/// - `InvalidInput`: the text has another form, or a link-local address has no interface.
/// - `AddrNotAvailable`: no interface has the name.
pub fn parse_ip(text: &str) -> io::Result<SocketAddr> {
    let host = text
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(text);
    let (host, interface) = match host.split_once('%') {
        Some((host, interface)) => (host, Some(interface)),
        None => (host, None),
    };
    match (host.parse(), interface) {
        (Ok(IpAddr::V6(ip)), Some(interface)) => {
            Ok(SocketAddrV6::new(ip, 0, 0, index(interface)?).into())
        }
        (Ok(ip), None) if is_link_local(ip) => Err(invalid(
            "a link-local address needs its interface, as in `fe80::1%eth0`",
        )),
        (Ok(ip), None) => Ok(SocketAddr::new(ip, 0)),
        (Ok(IpAddr::V4(_)), Some(_)) => {
            Err(invalid("only an IPv6 address has an interface after `%`"))
        }
        (Err(_), _) => Err(invalid("this is no IP address")),
    }
}

fn parse_host(host: &str, port: u16) -> io::Result<SocketAddr> {
    let is_name = |host: &str| {
        let ip = host.trim_start_matches('[').split(['%', ']']).next();
        ip.is_none_or(|ip| ip.parse::<IpAddr>().is_err())
    };
    let mut address = match host {
        "localhost" => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        name if is_name(name) => address_of_interface(name)?,
        ip => parse_ip(ip)?,
    };
    address.set_port(port);
    Ok(address)
}

const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the number of an interface, which may be named by its number.
fn index(interface: &str) -> io::Result<u32> {
    match interface.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => if_nametoindex(interface).map_err(|_| no_interface(interface)),
    }
}

fn no_interface(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        alloc::format!("{name:?} is neither an IP address nor an interface of this host"),
    )
}

/// Returns the MTU of the interface with an address; `None` if the system does not tell.
pub(crate) fn interface_mtu(address: IpAddr) -> Option<u32> {
    let mut all = getifaddrs().ok()?;
    let interface = all.find(|interface| {
        let own = address_of(interface);
        own.is_some_and(|own| own.ip() == address)
    })?;
    // A further address may have a name of its own, as in `eth0:1`.
    let name = interface.interface_name.split(':').next()?;
    let path = std::path::Path::new("/sys/class/net").join(name);
    let text = std::fs::read_to_string(path.join("mtu")).ok()?;
    text.trim().parse().ok()
}

/// Returns the address of an interface that is up, with its scope if it is link-local.
fn address_of(interface: &InterfaceAddress) -> Option<SocketAddr> {
    if !interface.flags.contains(InterfaceFlags::IFF_UP) {
        return None;
    }
    let address = interface.address.as_ref()?;
    let v4 = address
        .as_sockaddr_in()
        .map(|v4| SocketAddr::new(v4.ip().into(), 0));
    let v6 = || {
        let v6 = address.as_sockaddr_in6()?;
        Some(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id()).into())
    };
    v4.or_else(v6)
}

/// Returns an address of an interface: IPv4 first, a link-local one last.
fn address_of_interface(name: &str) -> io::Result<SocketAddr> {
    let order = |address: &SocketAddr| (address.is_ipv6(), is_link_local(address.ip()));
    let mut found = false;
    let all = getifaddrs()?
        .filter(|one| one.interface_name == name)
        .inspect(|_| found = true)
        .filter_map(|one| address_of(&one))
        .min_by_key(order);
    match all {
        Some(address) => Ok(address),
        None if found => Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            alloc::format!("the interface {name:?} is down or has no IP address"),
        )),
        None => Err(no_interface(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_adapters_are_ip_addresses_with_a_port() {
        let parsed = |text| {
            parse_address(text)
                .map(|address| address.socket.to_string())
                .ok()
        };
        assert_eq!(parsed("10.0.0.1").as_deref(), Some("10.0.0.1:0"));
        assert_eq!(
            parsed("localhost?udp=4791").as_deref(),
            Some("127.0.0.1:4791")
        );
        assert_eq!(parsed("[::1]?udp=5").as_deref(), Some("[::1]:5"));
        assert_eq!(parsed("::").as_deref(), Some("[::]:0"));
        assert_eq!(parsed("fe80::1%7?udp=5").as_deref(), Some("[fe80::1%7]:5"));
        assert_eq!(parsed("[fe80::1%7]").as_deref(), Some("[fe80::1%7]:0"));
        for (text, seconds) in [
            ("::1?keep-alive=10", 10),
            ("::1?udp=5&keep-alive=1", 1),
            ("::1?keep-alive=4294967295&udp=5", u32::MAX),
        ] {
            let address = parse_address(text).expect(text);
            let period = Duration::from_secs(seconds.into());
            assert_eq!(address.keep_alive, Some(period), "{text}");
            let port = if text.contains("udp") { 5 } else { 0 };
            assert_eq!(address.socket.port(), port, "{text}");
        }
        let address = parse_address("::1?udp=5").expect("one option");
        assert_eq!((address.keep_alive, address.mtu), (None, None));
        for mtu in PathMtu::ALL {
            let text = alloc::format!("::1?keep-alive=1&mtu={}&udp=5", mtu.bytes());
            let address = parse_address(&text).expect("three options");
            assert_eq!(address.mtu, Some(mtu), "{text}");
            let period = Some(Duration::from_secs(1));
            assert_eq!((address.keep_alive, address.socket.port()), (period, 5));
        }
        let refused = |text| parse_address(text).err().map(|error| error.kind());
        for wrong in [
            "10.0.0.1:5?",
            "::1?tcp=5",
            "::1?udp=",
            "::1?udp=70000",
            "::1?",
            "::1?udp=5&",
            "::1?udp=5&udp=5",
            "::1?keep-alive=0",
            "::1?keep-alive=1s",
            "::1?keep-alive=4294967296",
            "::1?keep-alive=1&keep-alive=1",
            "::1?mtu=1024&mtu=1024",
            "::1?path=packets&path=packets",
            "::1?path=packets&path=local",
            "fe80::1",
            "10.0.0.1%1",
        ] {
            assert_eq!(refused(wrong), Some(io::ErrorKind::InvalidInput), "{wrong}");
        }
        for wrong in [
            "", "0", "1", "3", "128", "1000", "1500", "4095", "8192", "+1024", "01024", "1024 ",
            "1k",
        ] {
            let error = parse_address(&alloc::format!("::1?mtu={wrong}"));
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains("256, 512, 1024, 2048 or 4096"), "{error}");
        }
        for wrong in [
            "",
            "both",
            "Any",
            "packet",
            "Local",
            "local ",
            "local,packets",
        ] {
            let error = parse_address(&alloc::format!("::1?path={wrong}"));
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains("`packets` (UDP) or `any`"), "{error}");
        }
        for wrong in ["", "no-such-interface", "10.0.0.1:5", "fe80::1%none"] {
            let kind = Some(io::ErrorKind::AddrNotAvailable);
            assert_eq!(refused(wrong), kind, "{wrong}");
        }
    }

    #[test]
    fn an_ip_address_has_its_interface_and_nothing_else() {
        for (text, address) in [
            ("10.0.0.1", "10.0.0.1:0"),
            ("[::1]", "[::1]:0"),
            ("fe80::1%7", "[fe80::1%7]:0"),
            ("[fe80::1%7]", "[fe80::1%7]:0"),
        ] {
            assert_eq!(parse_ip(text).expect(text).to_string(), address);
        }
        for wrong in [
            "",
            "lo",
            "localhost",
            "fe80::1",
            "10.0.0.1%7",
            "10.0.0.1:5",
            "::1?udp=5",
            "lo%7",
        ] {
            let error = parse_ip(wrong).expect_err(wrong);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
        let error = parse_ip("fe80::1%none").expect_err("no interface");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    /// Spec: ROCE-250
    #[test]
    fn an_address_sets_the_options_that_it_gives() {
        let period = |seconds| Some(Duration::from_secs(seconds));
        let mut options = RoceOptions::new([0; 16]);
        options.keep_alive = period(3);
        options.mtu = PathMtu::Bytes2048;
        let (mtu, any) = (PathMtu::Bytes2048, PathChoice::Any);
        for (text, expected) in [
            ("::1", (period(3), mtu, any)),
            ("::1?mtu=512", (period(3), PathMtu::Bytes512, any)),
            ("::1?keep-alive=5", (period(5), PathMtu::Bytes512, any)),
            (
                "::1?path=local&mtu=2048",
                (period(5), mtu, PathChoice::Local),
            ),
            ("::1?udp=5", (period(5), mtu, PathChoice::Local)),
            (
                "::1?udp=5&path=packets",
                (period(5), mtu, PathChoice::Packets),
            ),
            ("::1?path=any", (period(5), mtu, any)),
        ] {
            parse_address(text)
                .expect("an address")
                .apply_to(&mut options);
            assert_eq!(
                (options.keep_alive, options.mtu, options.path),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn an_interface_stands_for_its_address() {
        let loopback = getifaddrs()
            .expect("interfaces")
            .find(|one| one.flags.contains(InterfaceFlags::IFF_LOOPBACK))
            .expect("a loop-back interface");
        let address = parse_address(&alloc::format!("{}?udp=9", loopback.interface_name));
        let address = address.expect("an address");
        assert_eq!(address.socket.to_string(), "127.0.0.1:9");
    }

    #[test]
    fn a_wildcard_tells_an_address_of_its_family() {
        let v4 = representative(Ipv4Addr::UNSPECIFIED.into());
        assert!(v4.is_ipv4() && addresses().contains(&v4), "{v4}");
        let any = representative(Ipv6Addr::UNSPECIFIED.into());
        assert!(addresses().contains(&any), "{any}");
    }
}
