//! Datagrams in and out: what the adapter needs of sockets, of a network card or of a simulation.

#[cfg(feature = "alloc")]
mod local;
#[cfg(feature = "alloc")]
mod outbox;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

#[cfg(feature = "alloc")]
pub use local::{Gone, LocalEvent, LocalNumber, LocalQueue, LocalQueues, RECORD_OVERHEAD};
#[cfg(feature = "std")]
pub(crate) use local::{LocalWay, STOPPED};
#[cfg(feature = "alloc")]
pub use outbox::{Outbox, Path, RUN_BYTES_MAX, RUN_PACKETS_MAX};

use dat_core::backend::{BackendError, NotLocal};

use crate::proto::PathMtu;
use crate::proto::icrc::Flow;

/// Received packets of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Addresses of the packets.
    pub flow: Flow,
    /// Their length in sum.
    pub length: usize,
    /// Length of each packet but the last, which may be shorter.
    pub segment: usize,
    /// The pair of queues that they came through, if no socket.
    #[cfg(feature = "alloc")]
    pub local: Option<LocalNumber>,
    /// Set for one packet whose payload is still in the queue of its pair: `buffer` has the
    /// headers, and anything in place of the payload.
    #[cfg(feature = "alloc")]
    pub is_split: bool,
}

impl Arrival {
    /// Returns the packets, which are in the first bytes of `buffer`.
    pub fn packets<'b>(&self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let used = buffer.get(..self.length).unwrap_or_default();
        used.chunks(self.segment.max(1))
    }
}

/// The reason why a UDP port was not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Another socket has it.
    InUse,
    /// The system refuses it, or has no room for another socket.
    Refused,
    /// The process, or the host, has no file descriptor left.
    Descriptors,
    /// The system does not permit it.
    Prohibited,
    /// Peers of this host would not find it, and no others are taken.
    NotLocal(NotLocal),
}

/// The way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address of this side that packets to the peer have as their source.
    pub source: IpAddr,
    /// Path MTU.
    pub mtu: PathMtu,
}

/// Reason why a datagram was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The peer's host has no socket at the port.
    NoPort,
    /// The peer's host cannot be reached.
    NoHost,
    /// A firewall prohibits the port, or the host.
    Prohibited,
}

/// Result of [`Port::sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awakening {
    /// Datagrams may have come, and reports too if `reports` is set.
    Arrivals {
        /// Reports may have come.
        reports: bool,
    },
    /// Packets of local queues may have come, and no datagrams.
    Local,
    /// None has.
    Nothing,
    /// A signal of the system arrived.
    Interrupted,
}

/// Returns the IPv4 address that has the form of an IPv6 one; keeps others, with their scope.
#[cfg(feature = "std")]
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// A way for datagrams. All calls but [`sleep`](Self::sleep) return at once.
pub trait Port: Send + Sync {
    /// Returns the address, and the UDP port that connections of this side are made from.
    ///
    /// A port that serves all addresses of its host returns the one that it tells to others.
    fn address(&self) -> SocketAddr;

    /// Returns the way to an address, whose port does not matter.
    ///
    /// # Errors
    /// - [`BackendError::Unreachable`]: there is no way.
    /// - [`BackendError::Address`]: the address has another family, or is not one of a host.
    /// - [`BackendError::Descriptors`], [`BackendError::Prohibited`], [`BackendError::Resources`]:
    ///   the system does not tell the way.
    fn route(&self, peer: SocketAddr) -> Result<Route, BackendError>;

    /// Returns how many packets may leave in one send; their identifications count up.
    fn run_packets(&self) -> u16 {
        1
    }

    /// Claims a UDP port of the address, to receive from and to send from (ROCE-44).
    ///
    /// # Errors
    /// [`ClaimError::InUse`], [`ClaimError::Refused`]: nothing was claimed.
    fn claim(&self, port: u16) -> Result<(), ClaimError>;

    /// Gives a claimed port back.
    fn release(&self, port: u16);

    /// Sends `packets`, of `segment` bytes each but the last, which may be shorter (ROCE-57).
    ///
    /// Packet k leaves with identification k, and its ICRC is right for that (ROCE-38). A datagram
    /// that is lost is no error: the transport repeats it.
    fn send(&self, flow: &Flow, packets: &[u8], segment: usize);

    /// Receives packets of one flow into `buffer`; `None` if there are none.
    ///
    /// The receiver's address in the flow is the one of the packets, which peers expect in answers
    /// (ROCE-42).
    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival>;

    /// Writes the beginning of a datagram that could not be delivered into `buffer`.
    ///
    /// Returns its length and the reason; `None` if there is none (ROCE-54).
    fn undelivered(&self, buffer: &mut [u8]) -> Option<(usize, Undelivered)> {
        let _ = buffer;
        None
    }

    /// Tells that a peer has not answered packets in time, or has asked again for them.
    ///
    /// None of them is longer than `length` bytes. The path may have lost those that are too long
    /// for it (ROCE-186).
    fn unanswered(&self, peer: SocketAddr, length: usize) {
        let _ = (peer, length);
    }

    /// Returns the queues to adapters of this host, if there are any.
    #[cfg(feature = "alloc")]
    fn local(&self) -> Option<alloc::sync::Arc<dyn LocalQueues>> {
        None
    }

    /// Returns the error number of a send that the system refused since the last call, if any.
    fn refused_send(&self) -> Option<i32> {
        None
    }

    /// Sleeps until datagrams come, [`wake`](Self::wake) is called, the pause ends or a signal of
    /// the system arrives.
    ///
    /// One thread at a time calls it. While it sleeps, a datagram wakes no other thread. Returns
    /// `None` at once if the port cannot sleep so, or not for so short a pause.
    fn sleep(&self, pause: Option<Duration>) -> Option<Awakening> {
        let _ = pause;
        None
    }

    /// Ends [`sleep`](Self::sleep), or the next one.
    fn wake(&self) {}
}
