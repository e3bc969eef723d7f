//! A socket of an adapter: its options, sends, and reports of datagrams that were not delivered.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicI32, Ordering};
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use super::options::{accept_without_checksum, set_fragments};
use crate::forks;
use crate::port::Undelivered;

/// Room for the system's messages with a datagram or a report: the error, the flow, the class of
/// the datagram, the length of its segments. Aligned as their headers are.
#[repr(align(8))]
struct Control([u8; 512]);

impl Control {
    const EMPTY: Self = Self([0; 512]);
}

/// Attempts to send after refusals of earlier datagrams, which the system reports first.
const ATTEMPTS: usize = 8;

/// A socket of an adapter.
pub(super) struct Socket {
    pub(super) port: u16,
    pub(super) io: UdpSocket,
    pub(super) state: UdpSocketState,
    /// Held while the socket fragments what is too long.
    fragments: Mutex<()>,
    /// Error number of the last datagram that the system refused in every attempt; 0 for none.
    pub(super) refused: AtomicI32,
}

/// A received datagram: its addresses and lengths.
pub(super) struct Received {
    pub(super) peer: SocketAddr,
    /// Address that it was sent to, if the socket has several.
    pub(super) own: Option<IpAddr>,
    pub(super) length: usize,
    /// Length of each joined packet; the last one may be shorter.
    pub(super) segment: usize,
}

/// The system's report of an earlier datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It could not be delivered; the number of its bytes that were written, and the reason.
    Undelivered(usize, Undelivered),
    /// It is longer than the path to a peer, says a router or somebody else; with the path's MTU.
    TooLong(IpAddr, u32),
    /// It is longer than the interface carries.
    Refused,
}

/// The outcome of a call of the system that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent, or lost: the transport repeats it.
    Done,
    /// The system does not send these packets in one call.
    NotSegmented,
    /// Longer than the interface carries.
    TooLong,
}

impl Socket {
    pub(super) fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        if address.is_ipv6() {
            accept_without_checksum(&io)?;
        }
        set_fragments(&io, address.is_ipv6(), false)?;
        state.enable_transport_errors((&io).into())?;
        // Each of these costs a part of every packet, and nobody reads them.
        let _ = setsockopt(&io, sockopt::ReceiveTimestampns, &false);
        let _ = setsockopt(&io, sockopt::IpRecvTos, &false);
        if address.is_ipv4() && !address.ip().is_unspecified() {
            // The socket has one address.
            setsockopt(&io, sockopt::Ipv4PacketInfo, &false)?;
        }
        // The system grants what it allows.
        let _ = state.set_recv_buffer_size((&io).into(), receive_buffer);
        let port = io.local_addr()?.port();
        forks::add(io.as_raw_fd());
        Ok(Self {
            port,
            io,
            state,
            fragments: Mutex::new(()),
            refused: AtomicI32::new(0),
        })
    }

    /// Receives a datagram, or several that the system joined.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut meta = [RecvMeta::default()];
        let mut slices = [IoSliceMut::new(buffer)];
        let received = self.state.recv((&self.io).into(), &mut slices, &mut meta);
        match received {
            Ok(_) => {
                let [meta] = meta;
                Ok(Received {
                    peer: meta.addr,
                    own: meta.dst_ip,
                    length: meta.len,
                    segment: meta.stride,
                })
            }
            Err(error) if is_forbidden(&error) => self.receive_slow(buffer),
            Err(error) => Err(error),
        }
    }

    /// Receives without the call of the system for several datagrams (ROCE-190).
    #[cold]
    fn receive_slow(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control = Control::EMPTY;
        let mut parts = [IoSliceMut::new(buffer)];
        let socket = self.io.as_raw_fd();
        let flags = MsgFlags::empty();
        let received = recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control.0), flags)?;
        let peer = received.address.and_then(socket_address);
        let mut datagram = Received {
            peer: peer.ok_or(io::ErrorKind::InvalidData)?,
            own: None,
            length: received.bytes,
            segment: received.bytes,
        };
        for message in received.cmsgs()? {
            match message {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    let octets = info.ipi_addr.s_addr.to_ne_bytes();
                    datagram.own = Some(Ipv4Addr::from(octets).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    datagram.own = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                }
                ControlMessageOwned::UdpGroSegments(length) => {
                    datagram.segment = usize::try_from(length).unwrap_or(received.bytes);
                }
                _ => {}
            }
        }
        Ok(datagram)
    }

    /// Sends packets one by one, in fragments if they are longer than their path (ROCE-186).
    pub(super) fn send_in_fragments(&self, transmit: &Transmit<'_>, segment: usize) {
        let _only = self
            .fragments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_ipv6 = transmit.destination.is_ipv6();
        // Without the option, packets of the length of the path arrive.
        let _ = set_fragments(&self.io, is_ipv6, true);
        self.send_each(transmit, segment);
        let _ = set_fragments(&self.io, is_ipv6, false);
    }

    /// Sends packets one by one; false if the next one is longer than its path.
    pub(super) fn send_each(&self, transmit: &Transmit<'_>, segment: usize) -> bool {
        for packet in transmit.contents.chunks(segment.max(1)) {
            let single = Transmit {
                contents: packet,
                segment_size: None,
                ..transmit.clone()
            };
            if self.send_one(&single) == Sent::TooLong {
                return false;
            }
        }
        true
    }

    /// Sends one packet, or several with segmentation.
    pub(super) fn send_one(&self, transmit: &Transmit<'_>) -> Sent {
        let is_plain = transmit.segment_size.is_none() && transmit.src_ip.is_none();
        let mut refusals = 0;
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let sent = if is_plain {
                // A call without control data costs a tenth less.
                let sent = self.io.send_to(transmit.contents, transmit.destination);
                sent.map(|_| ())
            } else {
                self.state.try_send((&self.io).into(), transmit)
            };
            match sent {
                Ok(()) => return Sent::Done,
                // A packet that is lost is repeated.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Done,
                // It may be the report of an earlier datagram, which anybody can forge.
                Err(error) if is_too_long(&error) => refusals += 1,
                // A device without segmentation, an address that it cannot be used with, or
                // segments that are longer than the path.
                Err(error) if transmit.segment_size.is_some() && !is_report(&error) => {
                    return Sent::NotSegmented;
                }
                // An earlier datagram was refused, and this one was not sent.
                Err(error) => refused = error.raw_os_error(),
            }
        }
        if refusals == ATTEMPTS {
            return Sent::TooLong;
        }
        self.refused.store(refused.unwrap_or(0), Ordering::Relaxed);
        Sent::Done
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        forks::remove(self.io.as_raw_fd());
    }
}

/// Returns true if the system, or a filter of system calls, refuses the call itself.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

fn socket_address(address: SockaddrStorage) -> Option<SocketAddr> {
    let ipv4 = address.as_sockaddr_in();
    let ipv6 = address.as_sockaddr_in6();
    ipv4.map(|address| SocketAddr::V4((*address).into()))
        .or_else(|| ipv6.map(|address| SocketAddr::V6((*address).into())))
}

/// Returns true if an error tells that a datagram is longer than its path or interface.
fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Returns true if an error is the report of an earlier datagram.
fn is_report(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    ) || matches!(error.raw_os_error(), Some(libc::EACCES | libc::ENONET))
}

/// Returns the reason of a report; `None` for a datagram that was too long.
const fn reason_of(error: &libc::sock_extended_err) -> Option<Undelivered> {
    /// Codes of ICMP for a network, a host and a communication that is prohibited.
    const PROHIBITED: [u8; 3] = [9, 10, 13];
    const UNREACHABLE: u8 = 3;
    let [network, host, communication] = PROHIBITED;
    let code = error.ee_code;
    let is_prohibited = error.ee_origin == libc::SO_EE_ORIGIN_ICMP
        && error.ee_type == UNREACHABLE
        && (code == network || code == host || code == communication);
    match error.ee_errno.cast_signed() {
        libc::EMSGSIZE => None,
        // The second one stands for those of ICMPv6.
        _ if is_prohibited => Some(Undelivered::Prohibited),
        libc::EACCES => Some(Undelivered::Prohibited),
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENONET => {
            Some(Undelivered::NoHost)
        }
        _ => Some(Undelivered::NoPort),
    }
}

/// Reads the report of an earlier datagram, and writes the beginning of the datagram.
pub(super) fn report(socket: RawFd, buffer: &mut [u8]) -> nix::Result<Report> {
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let mut control = Control::EMPTY;
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control.0), flags)?;
    let error = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
            Some(error)
        }
        _ => None,
    });
    // Without a reason, the request is tried again as after a refusal.
    let Some(error) = error else {
        return Ok(Report::Undelivered(received.bytes, Undelivered::NoPort));
    };
    if let Some(reason) = reason_of(&error) {
        return Ok(Report::Undelivered(received.bytes, reason));
    }
    let is_own = error.ee_origin == libc::SO_EE_ORIGIN_LOCAL;
    let peer = received.address.and_then(socket_address);
    Ok(match peer.filter(|_| !is_own) {
        Some(peer) => Report::TooLong(peer.ip(), error.ee_info),
        None => Report::Refused,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Longest time until the system reports a datagram on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// The system's report of a datagram, once it is there.
    fn next_report(socket: &Socket) -> Report {
        let mut buffer = [0; 1024];
        let begin = Instant::now();
        loop {
            match report(socket.io.as_raw_fd(), &mut buffer) {
                Ok(report) => return report,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// Spec: ROCE-54
    #[test]
    fn a_report_of_a_refusal_has_its_reason() {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let socket = Socket::bind(any, 1 << 16).expect("a socket");
        let other = UdpSocket::bind(any).expect("a socket");
        // It takes datagrams of its peer only, which is itself, and keeps the port.
        let address = other.local_addr().expect("its address");
        other.connect(address).expect("a peer");
        socket.io.send_to(b"refused", address).expect("sent");
        let refused = Report::Undelivered(b"refused".len(), Undelivered::NoPort);
        assert_eq!(next_report(&socket), refused);
    }

    /// Spec: ROCE-54
    #[test]
    fn reports_of_firewalls_and_routers_differ() {
        let of = |ee_errno: libc::c_int, ee_type, ee_code| {
            reason_of(&libc::sock_extended_err {
                ee_errno: ee_errno.cast_unsigned(),
                ee_origin: libc::SO_EE_ORIGIN_ICMP,
                ee_type,
                ee_code,
                ee_pad: 0,
                ee_info: 0,
                ee_data: 0,
            })
        };
        assert_eq!(of(libc::ECONNREFUSED, 3, 3), Some(Undelivered::NoPort));
        assert_eq!(of(libc::EHOSTUNREACH, 3, 1), Some(Undelivered::NoHost));
        assert_eq!(of(libc::ENONET, 3, 8), Some(Undelivered::NoHost));
        for (errno, code) in [
            (libc::ENETUNREACH, 9),
            (libc::EHOSTUNREACH, 10),
            (libc::EHOSTUNREACH, 13),
        ] {
            assert_eq!(of(errno, 3, code), Some(Undelivered::Prohibited), "{code}");
        }
        assert_eq!(of(libc::EACCES, 1, 1), Some(Undelivered::Prohibited));
        assert_eq!(of(libc::EMSGSIZE, 3, 4), None);
    }

    /// A datagram of IPv6 can be longer than the MTU of the loop-back interface.
    #[test]
    fn a_report_of_a_datagram_that_is_too_long_has_its_reason() {
        let any = SocketAddr::new(core::net::Ipv6Addr::LOCALHOST.into(), 0);
        let peer = UdpSocket::bind(any).and_then(|io| io.local_addr());
        let Ok(peer) = peer else {
            // A host without IPv6 has no such socket either.
            assert!(Socket::bind(any, 1 << 16).is_err());
            return;
        };
        let socket = Socket::bind(any, 1 << 16).expect("a socket");
        let error = socket.io.send_to(&[0; 65_520], peer).expect_err("too long");
        assert!(is_too_long(&error), "{error}");
        assert_eq!(next_report(&socket), Report::Refused);
    }
}
