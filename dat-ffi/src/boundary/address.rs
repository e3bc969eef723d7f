//! Socket addresses.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use dat_core::attributes::IaAddress;
use dat_core::{Error, ErrorKind, Result, Subtype};
use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6};

/// A pointer to a `struct sockaddr` of IPv4 or IPv6, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Address(*const libc::sockaddr);

impl Address {
    /// Reads the address.
    ///
    /// # Errors
    /// - INVALID_PARAMETER with `position`: the pointer is null.
    /// - INVALID_ADDRESS (MALFORMED): the family is neither IPv4 nor IPv6.
    pub(crate) fn get(self, position: u8) -> Result<IaAddress> {
        if self.0.is_null() {
            return Err(Error::invalid_argument(position));
        }
        // SAFETY: the pointer is not null, so the C caller promises that it points to an address.
        // An address begins with its family.
        let family = unsafe { (&raw const (*self.0).sa_family).read_unaligned() };
        match i32::from(family) {
            AF_INET => {
                // SAFETY: an address of this family has this layout, for which every bit pattern is
                // a value.
                let address = unsafe { self.0.cast::<sockaddr_in>().read_unaligned() };
                let host = Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr));
                let port = u16::from_be(address.sin_port);
                Ok(SocketAddr::V4(SocketAddrV4::new(host, port)).into())
            }
            AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { self.0.cast::<sockaddr_in6>().read_unaligned() };
                let host = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let port = u16::from_be(address.sin6_port);
                Ok(SocketAddr::V6(SocketAddrV6::new(host, port, 0, address.sin6_scope_id)).into())
            }
            _ => Err(Error::new(
                ErrorKind::InvalidAddress,
                Subtype::InvalidAddressMalformed,
            )),
        }
    }
}

/// A socket address that C gets.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SocketAddress {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

impl SocketAddress {
    /// Makes a socket address; without family and content for a fabric that has no sockets.
    pub(crate) fn new(address: IaAddress) -> Self {
        // SAFETY: both layouts are made of numbers, for which zero is a value.
        let mut made: Self = unsafe { MaybeUninit::zeroed().assume_init() };
        match address.socket_address() {
            Some(SocketAddr::V4(address)) => {
                made.v4.sin_family = AF_INET as libc::sa_family_t;
                made.v4.sin_port = address.port().to_be();
                made.v4.sin_addr.s_addr = address.ip().to_bits().to_be();
            }
            Some(SocketAddr::V6(address)) => {
                made.v6.sin6_family = AF_INET6 as libc::sa_family_t;
                made.v6.sin6_port = address.port().to_be();
                made.v6.sin6_addr.s6_addr = address.ip().octets();
                made.v6.sin6_scope_id = address.scope_id();
            }
            None => {}
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["10.9.0.1:7", "[fd09::1]:45248", "[fe80::2%3]:0"] {
            let address = IaAddress::from(text.parse::<SocketAddr>().expect("an address"));
            let made = SocketAddress::new(address);
            let pointer = Address((&raw const made).cast());
            assert_eq!(pointer.get(1), Ok(address), "{text}");
        }
    }

    #[test]
    fn other_families_and_null_are_refused() {
        let nowhere = SocketAddress::new(IaAddress::Node(3));
        let malformed = Error::new(ErrorKind::InvalidAddress, Subtype::InvalidAddressMalformed);
        assert_eq!(Address((&raw const nowhere).cast()).get(2), Err(malformed));
        let null = Address(std::ptr::null());
        assert_eq!(null.get(2), Err(Error::invalid_argument(2)));
    }
}
