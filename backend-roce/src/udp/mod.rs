//! Sockets of an adapter, and the thread that serves it.

mod narrow_paths;
mod neighbours;
mod options;
mod poller;
mod service;
mod socket;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::{PoisonError, RwLock};

use dat_core::backend::BackendError;
use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use nix::sys::socket::sockopt;
use quinn_udp::Transmit;

use self::narrow_paths::NarrowPaths;
use self::neighbours::Neighbours;
use self::options::ipv6_mtu;
use self::poller::Poller;
pub(crate) use self::service::Service;
use self::socket::{Report, Sent, Socket, report};
use crate::address::{interface_mtu, representative};
use crate::backend::RoceBackend;
use crate::device::{PORTS, RoceDevice};
use crate::forks;
use crate::options::{PathChoice, RoceOptions};
use crate::port::{
    Arrival, Awakening, ClaimError, LocalQueues, Port, RUN_PACKETS_MAX, Route, Undelivered,
    canonical,
};
use crate::proto::PathMtu;
use crate::proto::icrc::Flow;
use crate::proto::packet::UDP_PORT;

/// Path MTU of the loop-back interface.
const LOOPBACK_MTU: i32 = 65_536;

/// MTU that every path has unless the interface has a smaller one (ROCE-186, ROCE-193).
///
/// The system learns of smaller ones by ICMP, which anybody can forge.
const SMALLEST_MTU: u32 = 1280;

/// Pauses for which the poller's milliseconds are too coarse.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Empty datagrams and reports that are skipped for one that is not.
const SKIPPED: usize = 1 << 16;

/// Datagrams that a socket gives in a row before another one is read.
///
/// To look at a socket without any costs a tenth of a short transfer.
const STREAK: usize = 16;

/// The sockets of an adapter. The first one makes its connections.
struct UdpPort {
    /// Address of all sockets, with the port of the first one.
    bound: SocketAddr,
    /// Address that the adapter gives as its own; not that of `bound` if that is a wildcard.
    told: SocketAddr,
    sockets: RwLock<Vec<Socket>>,
    /// Receive buffer that each socket asks for, in bytes.
    receive_buffer: usize,
    /// Pollers of a thread of the program and of the adapter's thread, if it has one.
    pollers: Option<[Arc<Poller>; 2]>,
    /// The socket to read first, times [`STREAK`], plus the datagrams that it gave in a row.
    next: AtomicUsize,
    narrow: NarrowPaths,
    /// Queues to adapters of this host, if they are wanted.
    neighbours: Option<Arc<Neighbours>>,
}

impl UdpPort {
    fn register(&self, socket: &Socket) -> io::Result<()> {
        // A thread of the program that sleeps is served first: it need not be woken by the other.
        let mut pollers = self.pollers.iter().flatten();
        pollers.try_for_each(|poller| poller.add(&socket.io))
    }

    /// Returns the address of the socket with a port.
    fn at(&self, port: u16) -> SocketAddr {
        let mut address = self.bound;
        address.set_port(port);
        address
    }

    /// Returns the form of a peer's address that sockets of this address take.
    ///
    /// A socket for all addresses of both families takes IPv4 addresses in the form of IPv6.
    fn to_peer(&self, peer: SocketAddr) -> SocketAddr {
        match peer.ip() {
            IpAddr::V4(ip) if self.bound.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), peer.port())
            }
            _ => peer,
        }
    }

    /// Returns true if the sockets take both families.
    fn takes_both(&self) -> bool {
        self.bound.ip() == Ipv6Addr::UNSPECIFIED
    }

    fn sockets(&self) -> std::sync::RwLockReadGuard<'_, Vec<Socket>> {
        self.sockets.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port for UdpPort {
    fn address(&self) -> SocketAddr {
        self.told
    }

    fn route(&self, mut peer: SocketAddr) -> Result<Route, BackendError> {
        let is_many = peer.ip().is_multicast() || peer.ip() == Ipv4Addr::BROADCAST;
        let is_usable = peer.is_ipv4() == self.bound.is_ipv4() || self.takes_both();
        if is_many || !is_usable {
            return Err(BackendError::Address);
        }
        let near = match peer {
            SocketAddr::V4(_) if self.bound.is_ipv6() => (Ipv4Addr::UNSPECIFIED, 0).into(),
            _ => self.at(0),
        };
        // Connecting sends nothing; it selects the way.
        let probe = UdpSocket::bind(near).map_err(|error| no_route(&error))?;
        peer.set_port(UDP_PORT);
        probe.connect(peer).map_err(|error| no_route(&error))?;
        let source = probe.local_addr().map_err(|error| no_route(&error))?.ip();
        let mtu = if peer.ip().is_loopback() {
            Some(LOOPBACK_MTU)
        } else if peer.is_ipv4() {
            nix::sys::socket::getsockopt(&probe, sockopt::IpMtu).ok()
        } else {
            ipv6_mtu(&probe)
        };
        // Without an answer, the MTU of Ethernet.
        let mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(1500);
        let mtu = believed_mtu(mtu, || interface_mtu(source));
        let mtu = PathMtu::for_interface(mtu).ok_or(BackendError::Unreachable)?;
        match source.is_ipv4() == peer.is_ipv4() {
            true => Ok(Route { source, mtu }),
            false => Err(BackendError::Address),
        }
    }

    fn run_packets(&self) -> u16 {
        let sockets = self.sockets();
        let most = sockets
            .first()
            .map(|socket| socket.state.max_gso_segments());
        most.and_then(|most| u16::try_from(most).ok())
            .unwrap_or(1)
            .min(RUN_PACKETS_MAX)
    }

    fn claim(&self, port: u16) -> Result<(), ClaimError> {
        let socket = Socket::bind(self.at(port), self.receive_buffer);
        let socket = socket.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ClaimError::InUse,
            io::ErrorKind::PermissionDenied => ClaimError::Prohibited,
            _ if is_for_descriptors(&error) => ClaimError::Descriptors,
            _ => ClaimError::Refused,
        })?;
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        let has_room = sockets.try_reserve(1).is_ok();
        has_room.then_some(()).ok_or(ClaimError::Refused)?;
        self.register(&socket).map_err(|_| ClaimError::Refused)?;
        if let Some(neighbours) = &self.neighbours {
            neighbours.listen(port).map_err(ClaimError::NotLocal)?;
        }
        sockets.push(socket);
        Ok(())
    }

    fn release(&self, port: u16) {
        if port != self.bound.port()
            && let Some(neighbours) = &self.neighbours
        {
            neighbours.stop_listening(port);
        }
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.port != port || port == self.bound.port());
    }

    fn send(&self, flow: &Flow, packets: &[u8], segment: usize) {
        let sockets = self.sockets();
        let socket = sockets
            .iter()
            .find(|socket| socket.port == flow.source_port);
        let Some(socket) = socket else {
            return;
        };
        let transmit = Transmit {
            destination: self.to_peer(flow.destination()),
            ecn: None,
            contents: packets,
            segment_size: (packets.len() > segment).then_some(segment),
            src_ip: self.bound.ip().is_unspecified().then(|| flow.source().ip()),
        };
        let peer = transmit.destination.ip();
        if self.narrow.refuses(peer, segment) {
            socket.send_in_fragments(&transmit, segment);
            return;
        }
        let is_sent = match socket.send_one(&transmit) {
            Sent::Done => true,
            Sent::NotSegmented => socket.send_each(&transmit, segment),
            Sent::TooLong => false,
        };
        if !is_sent {
            // The transport drops the packets that are sent twice.
            self.narrow.add(peer, segment);
            socket.send_in_fragments(&transmit, segment);
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let sockets = self.sockets();
        let next = self.next.load(Ordering::Relaxed);
        for offset in 0..sockets.len() {
            let index = (next / STREAK).wrapping_add(offset) % sockets.len();
            let socket = sockets.get(index)?;
            for _ in 0..SKIPPED {
                match socket.receive(buffer) {
                    // The poller reports new data once, so the socket is read until it is empty.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(datagram) if datagram.length > 0 => {
                        let own = datagram.own.unwrap_or(self.bound.ip()).to_canonical();
                        let own = SocketAddr::new(own, socket.port);
                        let peer = canonical(datagram.peer);
                        if let Some(flow) = Flow::between(peer, own) {
                            // The next socket after a full streak, so that none waits for long.
                            let streak = if offset == 0 { next % STREAK + 1 } else { 1 };
                            let next = index * STREAK + streak;
                            self.next.store(next, Ordering::Relaxed);
                            return Some(Arrival {
                                flow,
                                length: datagram.length,
                                segment: datagram.segment,
                                local: None,
                                is_split: false,
                            });
                        }
                    }
                    // An empty datagram, or the report of a refused one.
                    _ => {}
                }
            }
        }
        None
    }

    fn undelivered(&self, buffer: &mut [u8]) -> Option<(usize, Undelivered)> {
        let sockets = self.sockets();
        for socket in sockets.iter() {
            for _ in 0..SKIPPED {
                match report(socket.io.as_raw_fd(), buffer) {
                    Ok(Report::Undelivered(length, reason)) => return Some((length, reason)),
                    Ok(Report::TooLong(peer, mtu)) => self.narrow.claim(peer, mtu),
                    Ok(Report::Refused) => {}
                    Err(_) => break,
                }
            }
        }
        None
    }

    fn local(&self) -> Option<Arc<dyn LocalQueues>> {
        let neighbours = Arc::clone(self.neighbours.as_ref()?);
        Some(neighbours)
    }

    fn unanswered(&self, peer: SocketAddr, length: usize) {
        self.narrow.confirm(self.to_peer(peer).ip(), length);
    }

    fn refused_send(&self) -> Option<i32> {
        let sockets = self.sockets();
        let refused = sockets
            .iter()
            .map(|socket| socket.refused.swap(0, Ordering::Relaxed));
        refused.filter(|number| *number != 0).last()
    }

    fn sleep(&self, pause: Option<Duration>) -> Option<Awakening> {
        let [poller, _] = self.pollers.as_ref()?;
        if pause.is_some_and(|pause| pause < SHORT_PAUSE) {
            return None;
        }
        // Rounded down: the caller waits for the rest in another way.
        let pause = pause.map(|pause| Duration::from_millis(pause.as_millis() as u64));
        let wakeup = poller.sleep(pause);
        if wakeup.setup
            && let Some(neighbours) = &self.neighbours
        {
            neighbours.attend(wakeup.gone);
        }
        Some(match wakeup.arrivals {
            true => Awakening::Arrivals {
                reports: wakeup.reports,
            },
            false if wakeup.local => Awakening::Local,
            false if wakeup.interrupted => Awakening::Interrupted,
            false => Awakening::Nothing,
        })
    }

    fn wake(&self) {
        if let Some([poller, _]) = &self.pollers {
            poller.wake();
        }
    }
}

/// Returns the MTU to use for a path: `known` is the system's value, `own` the interface's.
fn believed_mtu(known: u32, own: impl FnOnce() -> Option<u32>) -> u32 {
    if known >= SMALLEST_MTU {
        return known;
    }
    own().map_or(known, |own| known.max(own.min(SMALLEST_MTU)))
}

/// Returns true if the process, or the host, has no descriptor left.
fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the meaning of an error of a socket that was to find the way to a peer.
fn no_route(error: &io::Error) -> BackendError {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => BackendError::Descriptors,
        Some(libc::EPERM) => BackendError::Prohibited,
        Some(libc::ENOMEM | libc::ENOBUFS) => BackendError::Resources,
        // Of a broadcast address of an interface, for one.
        Some(libc::EACCES | libc::EAFNOSUPPORT) => BackendError::Address,
        _ => BackendError::Unreachable,
    }
}

/// Explains why a port cannot be had (ROCE-55).
fn taken(address: SocketAddr, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    let text = alloc::format!(
        "UDP port {} of {} is taken: by soft-RoCE (rdma_rxe) in this network namespace, or by another \
        process; stop that one, use another address, or let the adapter choose a port",
        address.port(),
        address.ip(),
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

impl RoceBackend {
    /// Opens an adapter at an address of this host, with a thread that serves it unless the options
    /// ask for a polled one.
    ///
    /// The port of `address` is the UDP port of the connections that the adapter makes. If it is 0,
    /// the port is 4791, or a free one if that is taken. `0.0.0.0` stands for all IPv4 addresses of
    /// this host, `::` for all addresses; the adapter then names itself by one of them.
    ///
    /// # Errors
    /// Those of the system: the host does not have the address (`AddrNotAvailable`), another
    /// program or soft-RoCE has the port (`AddrInUse`), no thread or descriptor is left.
    pub fn open(address: SocketAddr, options: RoceOptions) -> io::Result<Self> {
        forks::prepare()?;
        let wanted = |port| {
            let mut address = address;
            address.set_port(port);
            Socket::bind(address, options.receive_buffer)
        };
        let first = match address.port() {
            0 => wanted(UDP_PORT).or_else(|_| wanted(0)),
            port => wanted(port),
        }
        .map_err(|error| taken(address, error))?;
        let pollers = match options.polled {
            true => None,
            false => Some([Arc::new(Poller::new()?), Arc::new(Poller::new()?)]),
        };
        let bound = first.io.local_addr()?;
        let neighbours = match options.path {
            PathChoice::Packets => None,
            path @ (PathChoice::Any | PathChoice::Local) => {
                let mut name = [0; 16];
                getrandom::fill(&mut name).map_err(io::Error::from)?;
                let neighbours =
                    Neighbours::new(name, bound, pollers.clone(), path == PathChoice::Local);
                let neighbours = neighbours.ok_or(io::ErrorKind::OutOfMemory)?;
                // Peers find the ports of service points; this one need not be found.
                let _ = neighbours.listen(bound.port());
                Some(Arc::new(neighbours))
            }
        };
        let port = UdpPort {
            bound,
            told: if bound.ip().is_unspecified() {
                SocketAddr::new(representative(bound.ip()), bound.port())
            } else {
                bound
            },
            sockets: RwLock::default(),
            receive_buffer: options.receive_buffer,
            pollers: pollers.clone(),
            next: AtomicUsize::new(0),
            narrow: NarrowPaths::new().ok_or(io::ErrorKind::OutOfMemory)?,
            neighbours,
        };
        port.register(&first)?;
        port.sockets
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(first);
        let (start_thread, look_again) = (options.start_thread, options.look_again);
        let clock = (!options.polled).then_some(ThreadWait::clock as fn() -> Instant);
        let mut backend = Self::new(Box::new(port), options, clock, Some(forks::generation()))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        if let Some([_, poller]) = pollers {
            let service = Service::start((start_thread, look_again), backend.shared(), poller)?;
            backend.set_service(service);
        }
        Ok(backend)
    }
}

impl RoceDevice {
    /// Opens a device at an address of this host, whose port does not matter, with a thread that
    /// serves it.
    ///
    /// It takes a free port that a QPN can name (ROCE-260), and 4791 too if that is free: peers
    /// whose QPNs name no port send there.
    ///
    /// # Errors
    /// Those of [`RoceBackend::open`]; `AddrInUse` if no port is left.
    pub fn open(mut address: SocketAddr, options: &RoceOptions) -> io::Result<Self> {
        let count = PORTS.len();
        let [first, second, ..] = options.secret;
        let start = usize::from(u16::from_be_bytes([first, second])) % count;
        for port in PORTS.cycle().skip(start).take(count) {
            address.set_port(port);
            match RoceBackend::open(address, options.clone()) {
                Ok(backend) => {
                    let device = Self::of(backend).ok_or(io::ErrorKind::OutOfMemory)?;
                    device.claim_common_port();
                    return Ok(device);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: ROCE-193
    #[test]
    fn a_path_is_not_narrower_than_1280_bytes_unless_its_interface_is() {
        for (known, own, believed) in [
            (9_000, Some(9_000), 9_000),
            (1_400, Some(9_000), 1_400),
            (1_280, None, 1_280),
            (552, Some(9_000), 1_280),
            (552, Some(1_500), 1_280),
            (552, Some(576), 576),
            (576, Some(576), 576),
            // Nothing is known of the interface.
            (552, None, 552),
        ] {
            assert_eq!(believed_mtu(known, || own), believed, "{known} {own:?}");
        }
        let known = believed_mtu(1_400, || panic!("the interface does not matter"));
        assert_eq!(known, 1_400);
    }
}
