//! The addresses of the device: its GID table.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fs;

use backend_roce::proto::PathMtu;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::errors::Result;

/// Name of the loop-back interface.
const LOOPBACK: &str = "lo";

/// An entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) address: IpAddr,
    /// Number of the interface.
    pub(crate) interface: u32,
}

impl Gid {
    /// Returns the bytes.
    pub(crate) const fn bytes(self) -> [u8; 16] {
        gid_of(self.address)
    }

    /// Returns true if this is an address; a link-local one may name its interface.
    pub(crate) fn is_at(self, address: SocketAddr) -> bool {
        let interface = interface_of(address);
        self.address == address.ip().to_canonical()
            && (interface == 0 || interface == self.interface)
    }

    /// Returns the place in the table: what other hosts reach first, and IPv4 first of that.
    fn order(self) -> (bool, bool, bool) {
        let is_link_local = matches!(self.address, IpAddr::V6(ip) if ip.is_unicast_link_local());
        (
            self.address.is_loopback(),
            is_link_local,
            self.address.is_ipv6(),
        )
    }
}

/// Returns the GID of an address: its bytes, mapped to IPv6.
pub(crate) const fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The properties of a device that its interfaces give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interfaces {
    pub(crate) gids: Vec<Gid>,
    /// Path MTU that every interface of the device carries.
    pub(crate) mtu: PathMtu,
    /// GUID: made of the hardware address of an interface, or of the first GID.
    pub(crate) guid: [u8; 8],
}

impl Interfaces {
    /// Returns what is known of a device at an address, which may be a wildcard.
    ///
    /// # Errors
    /// Those of the system, also for lack of memory.
    pub(crate) fn of(device: SocketAddr) -> Result<Self> {
        let all: Vec<_> = getifaddrs()?.collect();
        let found = all.iter().filter_map(|one| Some((one, address_of(one)?)));
        let mut found: Vec<_> = found
            .filter(|(_, address)| covers(device, *address))
            .map(|(one, address)| entry(address.ip(), name_of(one)))
            .collect();
        // The loop-back interface has more addresses than it lists.
        if found.is_empty() && device.ip().is_loopback() {
            found.push(entry(device.ip(), LOOPBACK));
        }
        found.sort_by_key(|(gid, _)| gid.order());
        found.dedup_by_key(|(gid, _)| *gid);
        // Packets between addresses of one host take its loop-back interface.
        let other_hosts = found.iter().filter(|(gid, _)| !gid.address.is_loopback());
        let mtu = other_hosts
            .filter_map(|(_, name)| mtu_of(name))
            .min()
            .and_then(PathMtu::for_interface)
            .unwrap_or(PathMtu::Bytes4096);
        let hardware = found
            .iter()
            .filter(|(gid, _)| !gid.address.is_loopback())
            .find_map(|(_, name)| hardware_address(&all, name));
        let gids: Vec<Gid> = found.into_iter().map(|(gid, _)| gid).collect();
        let guid = match (hardware, gids.first()) {
            (Some([a, b, c, d, e, f]), _) => [a ^ 2, b, c, 0xFF, 0xFE, d, e, f],
            (None, Some(gid)) => own_guid(gid.bytes()),
            (None, None) => own_guid([0; 16]),
        };
        Ok(Self { gids, mtu, guid })
    }
}

/// Returns an entry with the name of its interface.
fn entry(address: IpAddr, name: &str) -> (Gid, &str) {
    let interface = if_nametoindex(name).unwrap_or(0);
    (Gid { address, interface }, name)
}

/// Returns a GUID that no vendor gave.
const fn own_guid(gid: [u8; 16]) -> [u8; 8] {
    let [.., a, b, c, d] = gid;
    [0x02, b'D', b'A', b'T', a, b, c, d]
}

/// Returns true if a device at `device` serves an address.
fn covers(device: SocketAddr, address: SocketAddr) -> bool {
    match device.ip() {
        // The one of IPv6 stands for both families.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => true,
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.is_ipv4(),
        ip => ip.to_canonical() == address.ip() && interface_of(device) == interface_of(address),
    }
}

/// Returns the interface that a link-local address names; 0 for none.
fn interface_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) if address.ip().is_unicast_link_local() => address.scope_id(),
        _ => 0,
    }
}

/// Returns the name of the interface; a further address may have one of its own, as in `eth0:1`.
fn name_of(interface: &InterfaceAddress) -> &str {
    let name = interface.interface_name.split(':').next();
    name.unwrap_or(&interface.interface_name)
}

/// Returns the address of an interface that is up.
fn address_of(interface: &InterfaceAddress) -> Option<SocketAddr> {
    if !interface.flags.contains(InterfaceFlags::IFF_UP) {
        return None;
    }
    let address = interface.address.as_ref()?;
    if let Some(v4) = address.as_sockaddr_in() {
        return Some((v4.ip(), 0).into());
    }
    let v6 = *address.as_sockaddr_in6()?;
    Some(core::net::SocketAddrV6::from(v6).into())
}

fn mtu_of(interface: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?;
    text.trim().parse().ok()
}

fn hardware_address(all: &[InterfaceAddress], interface: &str) -> Option<[u8; 6]> {
    let links = all.iter().filter(|one| name_of(one) == interface);
    let links = links.filter_map(|one| one.address.as_ref()?.as_link_addr()?.addr());
    let mut known = links.filter(|address| *address != [0; 6]);
    known.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(device: &str) -> Interfaces {
        Interfaces::of(device.parse().expect("an address")).expect("interfaces")
    }

    #[test]
    fn a_device_at_one_address_has_one_gid() {
        let interfaces = of("127.0.0.1:0");
        let [gid] = interfaces.gids[..] else {
            panic!("{interfaces:?}");
        };
        assert_eq!(gid.bytes()[10..], [0xFF, 0xFF, 127, 0, 0, 1]);
        assert_ne!(gid.interface, 0);
        assert_eq!(interfaces.mtu, PathMtu::Bytes4096);
        assert_eq!(interfaces.guid, *b"\x02DAT\x7F\x00\x00\x01");
        assert_eq!(of("127.47.0.9:0").gids.len(), 1, "not listed");
        assert!(of("192.0.2.1:0").gids.is_empty(), "of no host");
    }

    #[test]
    fn a_device_at_all_addresses_has_them_all_loop_back_last() {
        let interfaces = of("[::]:0");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let is_last = |gid: &Gid| gid.address.is_loopback();
        let first = interfaces.gids.iter().position(is_last);
        let first = first.expect("the loop-back address");
        assert!(interfaces.gids[first..].iter().all(is_last));
        assert!(interfaces.gids.iter().any(|gid| gid.address == loopback));
        let v4 = of("0.0.0.0:0");
        assert!(v4.gids.iter().all(|gid| gid.address.is_ipv4()));
    }

    #[test]
    fn interfaces_may_have_the_same_link_local_address() {
        let gid = Gid {
            address: "fe80::1".parse().expect("an address"),
            interface: 3,
        };
        let at = |address: &str| gid.is_at(address.parse().expect("an address"));
        for own in ["[fe80::1%3]:5", "[fe80::1]:5"] {
            assert!(at(own), "{own}");
        }
        for other in ["[fe80::1%2]:5", "[fe80::2%3]:5", "10.0.0.1:5"] {
            assert!(!at(other), "{other}");
        }
        let mapped = Gid {
            address: Ipv4Addr::LOCALHOST.into(),
            interface: 1,
        };
        assert!(mapped.is_at("[::ffff:127.0.0.1%7]:5".parse().expect("an address")));
    }

    #[test]
    fn global_addresses_come_before_link_local_ones() {
        let gid = |address: &str| Gid {
            address: address.parse().expect("an address"),
            interface: 1,
        };
        let sorted = ["10.0.0.1", "fd09::1", "fe80::1", "127.0.0.1", "::1"].map(gid);
        assert!(sorted.is_sorted_by_key(|gid| gid.order()));
    }
}
