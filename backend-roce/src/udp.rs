//! Sockets of an adapter, and the thread that serves it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::{PoisonError, RwLock};
use std::thread::JoinHandle;

use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use nix::net::if_::InterfaceFlags;
use nix::sys::signal::SigSet;
use nix::sys::socket::{MsgFlags, recv};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use crate::adapter::Adapter;
use crate::backend::RoceBackend;
use crate::options::RoceOptions;
use crate::port::{Arrival, ClaimError, Port, RUN_PACKETS_MAX};
use crate::proto::PathMtu;
use crate::proto::icrc::Flow;
use crate::proto::packet::UDP_PORT;
use crate::shared::Shared;

/// Receive buffer that is asked for, in bytes; the system grants less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The token of the waker; sockets need none of their own, since all are read.
const SOCKETS: Token = Token(0);
const WAKER: Token = Token(1);

/// Time that the thread goes on after the end, for the answers of peers (ROCE-178).
const LINGER: Duration = Duration::from_millis(300);

/// Path MTU of the loop-back interface.
const LOOPBACK_MTU: i32 = 65_536;

/// A time that does not come.
const NEVER: Instant = Instant::from_micros(u64::MAX);

/// Empty datagrams and reports that are skipped for one that is not.
const SKIPPED: usize = 1 << 16;

/// Attempts to send after refusals of earlier datagrams, which the system reports first.
const ATTEMPTS: usize = 8;

/// A socket of an adapter.
struct Socket {
    port: u16,
    io: UdpSocket,
    state: UdpSocketState,
}

/// Accepts datagrams over IPv6 without a UDP checksum, as soft-RoCE sends them (ROCE-41).
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "an option that no crate has a function for")]
fn accept_without_checksum(io: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the value has the length that is given.
    let code = unsafe {
        libc::setsockopt(
            io.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_NO_CHECK6_RX,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
fn accept_without_checksum(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

impl Socket {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&io).into())?;
        if address.is_ipv6() {
            accept_without_checksum(&io)?;
        }
        state.enable_transport_errors((&io).into())?;
        // The system grants what it allows.
        let _ = state.set_recv_buffer_size((&io).into(), RECEIVE_BUFFER);
        Ok(Self {
            port: io.local_addr()?.port(),
            io,
            state,
        })
    }
}

/// The sockets of an adapter. The first one makes its connections.
struct UdpPort {
    address: SocketAddr,
    sockets: RwLock<Vec<Socket>>,
    registry: Registry,
    /// The socket to read first.
    next: AtomicUsize,
}

impl UdpPort {
    fn register(&self, socket: &Socket) -> io::Result<()> {
        let fd = socket.io.as_raw_fd();
        self.registry
            .register(&mut SourceFd(&fd), SOCKETS, Interest::READABLE)
    }

    fn sockets(&self) -> std::sync::RwLockReadGuard<'_, Vec<Socket>> {
        self.sockets.read().unwrap_or_else(PoisonError::into_inner)
    }
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

impl Port for UdpPort {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn path_mtu(&self, peer: SocketAddr) -> Option<PathMtu> {
        if peer.is_ipv4() != self.address.is_ipv4() {
            return None;
        }
        // Connecting sends nothing; it selects the route.
        let probe = UdpSocket::bind(SocketAddr::new(self.address.ip(), 0)).ok()?;
        probe.connect(SocketAddr::new(peer.ip(), UDP_PORT)).ok()?;
        let mtu = if peer.ip().is_loopback() {
            Some(LOOPBACK_MTU)
        } else if peer.is_ipv4() {
            nix::sys::socket::getsockopt(&probe, nix::sys::socket::sockopt::IpMtu).ok()
        } else {
            None
        };
        // Without an answer, the MTU of Ethernet.
        let mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(1500);
        PathMtu::for_interface(mtu)
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
        let socket = Socket::bind(SocketAddr::new(self.address.ip(), port));
        let socket = socket.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ClaimError::InUse,
            _ => ClaimError::Refused,
        })?;
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        self.register(&socket).map_err(|_| ClaimError::Refused)?;
        sockets.push(socket);
        Ok(())
    }

    fn release(&self, port: u16) {
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.port != port || port == self.address.port());
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
            destination: flow.destination(),
            ecn: None,
            contents: packets,
            segment_size: (packets.len() > segment).then_some(segment),
            src_ip: None,
        };
        for _ in 0..ATTEMPTS {
            match socket.state.try_send((&socket.io).into(), &transmit) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A device without segmentation, or an address that it cannot be used with.
                Err(error) if transmit.segment_size.is_some() && !is_report(&error) => {
                    for packet in packets.chunks(segment.max(1)) {
                        let single = Transmit {
                            contents: packet,
                            segment_size: None,
                            ..transmit.clone()
                        };
                        // A packet that is lost is repeated.
                        let _ = socket.state.try_send((&socket.io).into(), &single);
                    }
                    return;
                }
                // An earlier datagram was refused, and this one was not sent.
                Err(_) => {}
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let sockets = self.sockets();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for offset in 0..sockets.len() {
            let socket = sockets.get(first.wrapping_add(offset) % sockets.len())?;
            for _ in 0..SKIPPED {
                let mut meta = [RecvMeta::default()];
                let mut slices = [IoSliceMut::new(buffer)];
                let received = socket
                    .state
                    .recv((&socket.io).into(), &mut slices, &mut meta);
                let [meta] = meta;
                let own = SocketAddr::new(self.address.ip(), socket.port);
                match received {
                    // The poller reports new data once, so the socket is read until it is empty.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(1) if meta.len > 0 => {
                        if let Some(flow) = Flow::between(meta.addr, own) {
                            return Some(Arrival {
                                flow,
                                length: meta.len,
                                segment: meta.stride,
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

    fn refused(&self, buffer: &mut [u8]) -> Option<usize> {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        self.sockets()
            .iter()
            .find_map(|socket| recv(socket.io.as_raw_fd(), buffer, flags).ok())
    }
}

/// The thread that serves an adapter.
#[derive(Debug)]
pub(crate) struct Service {
    waker: Arc<Waker>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Returns true on the thread itself.
    pub(crate) fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        self.thread.as_ref().map(|thread| thread.thread().id()) == Some(current)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

/// Serves an adapter until it is closed and its peers have answered.
fn serve(shared: &Shared, poll: &mut Poll, stops: &AtomicBool) {
    // Signals are for the threads of the program.
    let _ = SigSet::all().thread_block();
    let mut events = Events::with_capacity(16);
    let mut end = None;
    let mut more = false;
    loop {
        let pause = {
            let mut sleeps_until = shared.sleeps_until();
            let deadline = shared.enter(|adapter| adapter.deadline());
            *sleeps_until = Some(deadline.unwrap_or(NEVER));
            deadline.map(|deadline| {
                let now = ThreadWait::clock().as_micros();
                Duration::from_micros(deadline.as_micros().saturating_sub(now))
            })
        };
        let left = end.map(|end: std::time::Instant| {
            end.saturating_duration_since(std::time::Instant::now())
        });
        let pause = match (pause, left) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let pause = if more { Some(Duration::ZERO) } else { pause };
        // Interrupted by nothing: signals are blocked.
        let _ = poll.poll(&mut events, pause);
        *shared.sleeps_until() = None;
        more = shared.drive();
        if stops.load(Ordering::Acquire) {
            let end = *end.get_or_insert_with(|| std::time::Instant::now() + LINGER);
            let over = std::time::Instant::now() >= end;
            if over || !shared.enter(|adapter| adapter.is_ending()) {
                shared.enter(Adapter::leave_ports);
                shared.flush();
                return;
            }
        }
    }
}

/// Parses the address of an adapter: `IP`, `[IPv6]` or `localhost`, each with `?udp=PORT` or not.
///
/// Without a port, it is 0.
#[must_use]
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let (host, port) = match text.split_once('?') {
        Some((host, option)) => (host, option.strip_prefix("udp=")?.parse().ok()?),
        None => (text, 0),
    };
    let host = match host {
        "localhost" => "127.0.0.1",
        host => host.trim_start_matches('[').trim_end_matches(']'),
    };
    let address: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(address, port))
}

/// Returns the IP addresses of this host at which adapters can be opened.
///
/// Link-local addresses, which need a scope, are left out.
pub fn addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|one| one.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let v6 = address.as_sockaddr_in6().map(|v6| v6.ip());
            let v6 = v6.filter(|ip| !ip.is_unicast_link_local());
            v4.or(v6.map(IpAddr::V6))
        })
        .collect()
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
    /// Opens an adapter at an address of this host, with a thread that serves it.
    ///
    /// The port of `address` is the UDP port of the connections that the adapter makes. If it is 0,
    /// the port is 4791, or a free one if that is taken.
    ///
    /// # Errors
    /// Those of the system: the host does not have the address (`AddrNotAvailable`), another program
    /// or soft-RoCE has the port (`AddrInUse`), no thread or descriptor is left.
    pub fn open(address: SocketAddr, options: RoceOptions) -> io::Result<Self> {
        if address.ip().is_unspecified() {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "an adapter needs an address of this host",
            ));
        }
        let wanted = |port| Socket::bind(SocketAddr::new(address.ip(), port));
        let first = match address.port() {
            0 => wanted(UDP_PORT).or_else(|_| wanted(0)),
            port => wanted(port),
        }
        .map_err(|error| taken(address, error))?;
        let mut poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let port = UdpPort {
            address: first.io.local_addr()?,
            sockets: RwLock::default(),
            registry: poll.registry().try_clone()?,
            next: AtomicUsize::new(0),
        };
        port.register(&first)?;
        port.sockets
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(first);
        let mut backend = Self::new(Box::new(port), options, Some(ThreadWait::clock));
        let shared = Arc::clone(backend.shared());
        let wakes = Arc::clone(&waker);
        shared.set_on_deadline(Box::new(move || {
            let _ = wakes.wake();
        }));
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let thread = std::thread::Builder::new()
            .name("roce".into())
            .spawn(move || serve(&shared, &mut poll, &stopped))?;
        backend.set_service(Service {
            waker,
            stops,
            thread: Some(thread),
        });
        Ok(backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn addresses_of_adapters_are_ip_addresses_with_a_port() {
        let parsed = |text| parse_address(text).map(|address| address.to_string());
        assert_eq!(parsed("10.0.0.1").as_deref(), Some("10.0.0.1:0"));
        assert_eq!(
            parsed("localhost?udp=4791").as_deref(),
            Some("127.0.0.1:4791")
        );
        assert_eq!(parsed("[::1]?udp=5").as_deref(), Some("[::1]:5"));
        for wrong in [
            "",
            "eth",
            "10.0.0.1:5",
            "::1?tcp=5",
            "::1?udp=",
            "::1?udp=70000",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
