//! A socket of an adapter: its options, sends, and reports of datagrams that were not delivered.

use alloc::vec::Vec;
use core::net::SocketAddr;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use quinn_udp::{Transmit, UdpSocketState};

use super::options::{accept_without_checksum, set_fragments};
use crate::forks;
use crate::port::Undelivered;

/// Bytes of the system's messages with a report: the error, the flow and the class of the datagram.
const CONTROL: usize = 512;

/// Attempts to send after refusals of earlier datagrams, which the system reports first.
const ATTEMPTS: usize = 8;

/// A socket of an adapter.
pub(super) struct Socket {
    pub(super) port: u16,
    pub(super) io: UdpSocket,
    pub(super) state: UdpSocketState,
    /// Held while the socket fragments what is too long.
    fragments: Mutex<()>,
}

/// The outcome of a call of the system that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent, or lost: the transport repeats it.
    Done,
    /// The system does not send these packets in one call.
    NotSegmented,
    /// Longer than the path.
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
        })
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
        let mut too_long = false;
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
                // The first one may be the report of an earlier datagram.
                Err(error) if is_too_long(&error) => {
                    if core::mem::replace(&mut too_long, true) {
                        return Sent::TooLong;
                    }
                }
                // A device without segmentation, an address that it cannot be used with, or
                // segments that are longer than the path.
                Err(error) if transmit.segment_size.is_some() && !is_report(&error) => {
                    return Sent::NotSegmented;
                }
                // An earlier datagram was refused, and this one was not sent.
                Err(_) => {}
            }
        }
        Sent::Done
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        forks::remove(self.io.as_raw_fd());
    }
}

/// Returns true if an error tells that a datagram is longer than its path.
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
    )
}

/// Reads the report of an earlier datagram, and writes the beginning of the datagram.
///
/// `None` stands for the report of a datagram that was longer than its path.
pub(super) fn report(
    socket: RawFd,
    buffer: &mut [u8],
) -> nix::Result<Option<(usize, Undelivered)>> {
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let mut control = Vec::with_capacity(CONTROL);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(socket, &mut parts, Some(&mut control), flags)?;
    // Without a reason, the request is tried again as after a refusal.
    let error = received.cmsgs().ok().and_then(|mut all| {
        all.find_map(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => Some(error.ee_errno),
            _ => None,
        })
    });
    let reason = match error.map(u32::cast_signed) {
        Some(libc::EMSGSIZE) => return Ok(None),
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN) => Undelivered::NoHost,
        _ => Undelivered::NoPort,
    };
    Ok(Some((received.bytes, reason)))
}
