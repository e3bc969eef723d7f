//! Abstract names of Unix sockets, after the UDP ports of adapters (ROCE-217).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::{self, Write as _};
use std::net::UdpSocket;

use nix::ifaddrs::getifaddrs;
use rustix::net::SocketAddrUnix;

/// Longest name.
const LENGTH: usize = 96;

/// Returns the name of a UDP port; a wildcard stands for an adapter that has all addresses.
pub(super) fn name(address: SocketAddr) -> io::Result<SocketAddrUnix> {
    let mut bytes = [0; LENGTH];
    let mut rest = bytes.as_mut_slice();
    let (ip, port) = (address.ip().to_canonical(), address.port());
    write!(rest, "dat-roce/{ip}/{port}")?;
    if let SocketAddr::V6(address) = address
        && address.ip().is_unicast_link_local()
    {
        // Each interface may have this address.
        write!(rest, "/{}", address.scope_id())?;
    }
    let used = LENGTH - rest.len();
    let name = bytes.get(..used).unwrap_or_default();
    Ok(SocketAddrUnix::new_abstract_name(name)?)
}

/// Returns the addresses whose names an adapter at `target` may have, in the order of the sockets
/// that the system gives a datagram to.
pub(super) fn candidates(target: SocketAddr) -> [Option<SocketAddr>; 3] {
    let at = |ip: IpAddr| Some(SocketAddr::new(ip, target.port()));
    let both = at(Ipv6Addr::UNSPECIFIED.into());
    match target.ip().to_canonical() {
        IpAddr::V4(_) => [Some(target), at(Ipv4Addr::UNSPECIFIED.into()), both],
        IpAddr::V6(_) => [Some(target), both, None],
    }
}

/// Returns true if the way from `source`, as the system has chosen it, leads to this host: it then
/// begins at the address itself.
pub(super) fn begins_at(source: IpAddr, target: SocketAddr) -> bool {
    let ip = target.ip().to_canonical();
    ip.is_loopback() || source.to_canonical() == ip
}

/// Returns true if this host has an address: an adapter at the wildcard then answers for it.
///
/// Connecting sends nothing.
pub(super) fn is_own(target: SocketAddr) -> bool {
    if target.ip().to_canonical().is_loopback() {
        return true;
    }
    let wildcard = match target {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let source = UdpSocket::bind(wildcard).and_then(|probe| {
        probe.connect(target)?;
        probe.local_addr()
    });
    // The way to a further address of a network begins at the first one.
    source.is_ok_and(|source| begins_at(source.ip(), target)) || is_listed(target)
}

/// Returns true if an interface has an address, and is the one that a link-local address names.
fn is_listed(target: SocketAddr) -> bool {
    let scope = match target {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    };
    let mut addresses = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|one| one.address);
    addresses.any(|own| match target.ip().to_canonical() {
        IpAddr::V4(ip) => own.as_sockaddr_in().is_some_and(|own| own.ip() == ip),
        IpAddr::V6(ip) => own
            .as_sockaddr_in6()
            .is_some_and(|own| own.ip() == ip && scope.is_none_or(|scope| scope == own.scope_id())),
    })
}

/// Returns true if a socket of the name of `at` may be asked for the address `target`.
pub(super) fn leads_to(at: SocketAddr, target: SocketAddr) -> bool {
    let is_one_of = |candidate: &SocketAddr| {
        candidate.ip().to_canonical() == at.ip().to_canonical() && candidate.port() == at.port()
    };
    candidates(target).iter().flatten().any(is_one_of)
}
