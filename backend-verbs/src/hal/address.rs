//! Conversion of socket addresses between Rust and C, and addresses of network interfaces.

use core::ffi::CStr;
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) address: SocketAddr,
}

/// Returns all addresses of all network interfaces.
pub(crate) fn interface_addresses() -> Vec<InterfaceAddress> {
    let mut first = ptr::null_mut();
    // SAFETY: makes a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list; its name is a string, its address null or a socket address.
        unsafe {
            let entry = &*next;
            if let Some(address) = read(entry.ifa_addr) {
                found.push(InterfaceAddress {
                    interface: CStr::from_ptr(entry.ifa_name)
                        .to_string_lossy()
                        .into_owned(),
                    address,
                });
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: the list made above.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// Returns the name of the network interface with this index.
pub(crate) fn interface_name(number: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has room for a name; the call returns it or null.
    let found = unsafe { libc::if_indextoname(number, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: a string in the array above.
    let name = unsafe { CStr::from_ptr(found) };
    Some(name.to_string_lossy().into_owned())
}

/// Converts a socket address to C.
pub(super) fn to_c(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all fields are integers.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let to = &raw mut storage;
    // SAFETY: the storage has the room and the alignment for an address of either family.
    unsafe {
        match address {
            SocketAddr::V4(address) => to.cast::<libc::sockaddr_in>().write(libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => to.cast::<libc::sockaddr_in6>().write(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
    storage
}

/// Converts a C socket address; `None` for null and other families.
///
/// # Safety
/// `address` is null, or points to an address of the length of its family.
pub(super) unsafe fn read(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the family is the first field of every address.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of this family.
            let socket = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(socket.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(socket.sin_port),
            )))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family.
            let socket = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(socket.sin6_addr.s6_addr),
                u16::from_be(socket.sin6_port),
                socket.sin6_flowinfo,
                socket.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

const _: () = assert!(size_of::<libc::sockaddr_storage>() >= size_of::<libc::sockaddr_in6>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_c() {
        for text in ["10.9.0.1:4000", "[fe80::1%7]:1", "[2001:db8::5]:65535"] {
            let address: SocketAddr = text.parse().expect("an address");
            let storage = to_c(address);
            // SAFETY: an address of the length of its family.
            let back = unsafe { read((&raw const storage).cast()) };
            assert_eq!(back, Some(address));
        }
    }

    #[test]
    fn null_and_other_families_are_no_addresses() {
        let mut storage = to_c("1.2.3.4:5".parse().expect("an address"));
        storage.ss_family = libc::AF_UNIX as u16;
        // SAFETY: long enough for any family.
        assert_eq!(unsafe { read((&raw const storage).cast()) }, None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(ptr::null()) }, None);
    }

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = interface_addresses();
        assert!(
            found.iter().any(|one| one.address.ip().is_loopback()),
            "{found:?}"
        );
    }
}
