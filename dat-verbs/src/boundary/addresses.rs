//! Socket addresses of C.

use core::ffi::{CStr, c_int};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::ptr::{null, null_mut};
use std::ffi::CString;

use libc::{addrinfo, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use nix::errno::Errno;

use super::pointers::{In, zeroed};
use crate::errors::Result;

impl In<sockaddr> {
    /// Returns the address; `None` for null.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`: it is of another family than IPv4 and IPv6.
    pub(crate) fn address(self) -> Result<Option<SocketAddr>> {
        let address = self.pointer();
        if address.is_null() {
            return Ok(None);
        }
        // SAFETY: every socket address begins with its family.
        let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
        match c_int::from(family) {
            libc::AF_INET => {
                // SAFETY: an address of this family has this layout.
                let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
                let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
                Ok(Some((ip, u16::from_be(v4.sin_port)).into()))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(Some(match ip.to_ipv4_mapped() {
                    Some(ip) => (ip, port).into(),
                    None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
                }))
            }
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }
}

/// Returns an address as C has it.
pub(crate) fn socket_storage(address: SocketAddr) -> sockaddr_storage {
    let mut made: sockaddr_storage = zeroed();
    let start = &raw mut made;
    match address {
        SocketAddr::V4(address) => {
            let mut v4: sockaddr_in = zeroed();
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = address.port().to_be();
            v4.sin_addr.s_addr = address.ip().to_bits().to_be();
            // SAFETY: there is room for an address of any family.
            unsafe { start.cast::<sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(address) => {
            let mut v6: sockaddr_in6 = zeroed();
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = address.port().to_be();
            v6.sin6_addr.s6_addr = address.ip().octets();
            v6.sin6_scope_id = address.scope_id();
            // SAFETY: as above.
            unsafe { start.cast::<sockaddr_in6>().write(v6) };
        }
    }
    made
}

/// Returns the number of bytes of an address as C has it.
pub(crate) const fn socket_length(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => size_of::<sockaddr_in>(),
        IpAddr::V6(_) => size_of::<sockaddr_in6>(),
    }
}

/// The answer of the system for a name.
pub(crate) struct Named {
    pub(crate) address: SocketAddr,
    pub(crate) socket_type: c_int,
    pub(crate) protocol: c_int,
    pub(crate) canonical: Option<CString>,
}

/// Returns the first IP address of a name and service; an error is a number of `getaddrinfo`.
pub(crate) fn named(
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<addrinfo>,
) -> core::result::Result<Named, c_int> {
    let mut list = null_mut();
    // SAFETY: the texts end with a zero byte, the hints are null or a value, and `list` has room.
    let failed = unsafe {
        libc::getaddrinfo(
            node.map_or(null(), CStr::as_ptr),
            service.map_or(null(), CStr::as_ptr),
            hints.as_ref().map_or(null(), core::ptr::from_ref),
            &raw mut list,
        )
    };
    if failed != 0 {
        return Err(failed);
    }
    let mut next = list;
    let mut first = Err(libc::EAI_FAMILY);
    // SAFETY: the system's list ends with null.
    while let Some(entry) = unsafe { next.as_ref() } {
        if let Ok(Some(address)) = In::at(entry.ai_addr).address() {
            // SAFETY: the system's name is null or a text.
            let canonical = (!entry.ai_canonname.is_null())
                .then(|| unsafe { CStr::from_ptr(entry.ai_canonname) }.to_owned());
            first = Ok(Named {
                address,
                socket_type: entry.ai_socktype,
                protocol: entry.ai_protocol,
                canonical,
            });
            break;
        }
        next = entry.ai_next;
    }
    // SAFETY: the list is the system's, and nothing of it is used any more.
    unsafe { libc::freeaddrinfo(list) };
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> Result<Option<SocketAddr>> {
        let storage = socket_storage(text.parse().expect("an address"));
        In::at((&raw const storage).cast()).address()
    }

    #[test]
    fn addresses_round_trip() {
        for text in ["10.9.0.1:7", "[fd09::1]:45248", "[fe80::2%3]:0"] {
            assert_eq!(round_trip(text), Ok(Some(text.parse().expect(text))));
        }
        let mapped = round_trip("[::ffff:10.0.0.1]:5");
        assert_eq!(mapped, Ok(Some("10.0.0.1:5".parse().expect("an address"))));
        assert_eq!(In::at(null()).address(), Ok(None));
        let mut other = socket_storage("10.9.0.1:7".parse().expect("an address"));
        other.ss_family = libc::AF_UNIX as libc::sa_family_t;
        let pointer = In::at((&raw const other).cast());
        assert_eq!(pointer.address(), Err(Errno::EAFNOSUPPORT));
    }

    #[test]
    fn names_have_addresses() {
        let found = named(Some(c"127.0.0.1"), Some(c"17"), None).ok();
        let address = found.map(|found| found.address);
        assert_eq!(address, "127.0.0.1:17".parse().ok());
        let mut wanted: addrinfo = zeroed();
        wanted.ai_flags = libc::AI_NUMERICHOST;
        let failed = named(Some(c"no address"), None, Some(wanted)).err();
        assert_eq!(failed, Some(libc::EAI_NONAME));
    }
}
