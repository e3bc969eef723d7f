//! Options of sockets that no crate has a function for.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Sets an option whose value is a number.
#[expect(unsafe_code, reason = "options that no crate has a function for")]
fn set_number(io: &UdpSocket, level: libc::c_int, name: libc::c_int, value: i32) -> io::Result<()> {
    let value: libc::c_int = value;
    // SAFETY: the descriptor is open, and the value has the length that is given.
    let code = unsafe {
        libc::setsockopt(
            io.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the path MTU of a connected socket of IPv6.
#[expect(unsafe_code, reason = "an option that no crate has a function for")]
pub(super) fn ipv6_mtu(io: &UdpSocket) -> Option<i32> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the value has the length that is given.
    let code = unsafe {
        libc::getsockopt(
            io.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (code == 0).then_some(value)
}

/// Accepts datagrams over IPv6 without a UDP checksum, as soft-RoCE sends them (ROCE-41).
pub(super) fn accept_without_checksum(io: &UdpSocket) -> io::Result<()> {
    set_number(io, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
}

/// Lets the system refuse a packet that is longer than its interface carries, or send it in
/// fragments.
///
/// It does not refuse by what ICMP has told it of the path: anybody can forge that (ROCE-40).
pub(super) fn set_fragments(io: &UdpSocket, is_ipv6: bool, fragments: bool) -> io::Result<()> {
    let discover = if fragments {
        libc::IP_PMTUDISC_WANT
    } else {
        libc::IP_PMTUDISC_PROBE
    };
    // A socket of IPv6 may have peers of IPv4.
    set_number(io, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)?;
    if is_ipv6 {
        set_number(io, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discover)?;
        let whole = i32::from(!fragments);
        set_number(io, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, whole)?;
    }
    Ok(())
}
