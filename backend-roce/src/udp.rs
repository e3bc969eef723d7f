//! Sockets of an adapter, and the thread that serves it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use crate::adapter::Adapter;
use crate::address::representative;
use crate::backend::RoceBackend;
use crate::forks;
use crate::options::RoceOptions;
use crate::poller::Poller;
use crate::port::{
    Arrival, Awakening, ClaimError, Port, RUN_PACKETS_MAX, Route, Undelivered, canonical,
};
use crate::proto::PathMtu;
use crate::proto::icrc::Flow;
use crate::proto::packet::UDP_PORT;
use crate::shared::Shared;

/// Bytes of the system's messages with a report: the error, the flow and the class of the datagram.
const CONTROL: usize = 512;

/// Time that the thread goes on after the end, for the answers of peers (ROCE-178).
const LINGER: Duration = Duration::from_millis(300);

/// Path MTU of the loop-back interface.
const LOOPBACK_MTU: i32 = 65_536;

/// Time that the thread leaves packets to a thread of the program that took some.
const LEFT_ALONE: Duration = Duration::from_micros(500);

/// A time that does not come.
const NEVER: Instant = Instant::from_micros(u64::MAX);

/// Pauses for which the poller's milliseconds are too coarse.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Empty datagrams and reports that are skipped for one that is not.
const SKIPPED: usize = 1 << 16;

/// Datagrams that a socket gives in a row before another one is read.
///
/// To look at a socket without any costs a tenth of a short transfer.
const STREAK: usize = 16;

/// Attempts to send after refusals of earlier datagrams, which the system reports first.
const ATTEMPTS: usize = 8;

/// Time for which packets to a peer may leave in fragments, after one was too long for its path.
///
/// The path may become wide again, and systems forget what they have learned about one.
const NARROW_TIME: Duration = Duration::from_secs(60);

/// Most peers that are known to have a narrow path.
const NARROW_MAX: usize = 64;

/// A socket of an adapter.
struct Socket {
    port: u16,
    io: UdpSocket,
    state: UdpSocketState,
    /// Held while the socket fragments what is too long.
    fragments: Mutex<()>,
}

/// Sets an option whose value is a number.
#[cfg(target_os = "linux")]
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
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "an option that no crate has a function for")]
fn ipv6_mtu(io: &UdpSocket) -> Option<i32> {
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

#[cfg(not(target_os = "linux"))]
fn ipv6_mtu(_: &UdpSocket) -> Option<i32> {
    None
}

/// Accepts datagrams over IPv6 without a UDP checksum, as soft-RoCE sends them (ROCE-41).
#[cfg(target_os = "linux")]
fn accept_without_checksum(io: &UdpSocket) -> io::Result<()> {
    set_number(io, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
}

#[cfg(not(target_os = "linux"))]
fn accept_without_checksum(_: &UdpSocket) -> io::Result<()> {
    Ok(())
}

/// Lets the system refuse a packet that is longer than its path, or send it in fragments.
///
/// It refuses by what it knows of the path, not only by the interface (ROCE-40).
#[cfg(target_os = "linux")]
fn set_fragments(io: &UdpSocket, is_ipv6: bool, fragments: bool) -> io::Result<()> {
    let discover = if fragments {
        libc::IP_PMTUDISC_WANT
    } else {
        libc::IP_PMTUDISC_DO
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

#[cfg(not(target_os = "linux"))]
fn set_fragments(_: &UdpSocket, _: bool, _: bool) -> io::Result<()> {
    Ok(())
}

impl Socket {
    fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
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
    fn send_in_fragments(&self, transmit: &Transmit<'_>, segment: usize) {
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
    fn send_each(&self, transmit: &Transmit<'_>, segment: usize) -> bool {
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
    fn send_one(&self, transmit: &Transmit<'_>) -> Sent {
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

/// The outcome of a call of the system that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Sent, or lost: the transport repeats it.
    Done,
    /// The system does not send these packets in one call.
    NotSegmented,
    /// Longer than the path.
    TooLong,
}

/// Peers with a path that is narrower than the path MTU of their connections (ROCE-186).
#[derive(Default)]
struct NarrowPaths {
    /// Number of entries, which a send looks at without the lock.
    count: AtomicUsize,
    /// Addresses, and the times until which they count.
    entries: Mutex<Vec<(IpAddr, std::time::Instant)>>,
}

impl NarrowPaths {
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<(IpAddr, std::time::Instant)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if packets to a peer may leave in fragments.
    fn contains(&self, peer: IpAddr) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = std::time::Instant::now();
        let mut entries = self.entries();
        entries.retain(|(_, until)| *until > now);
        self.count.store(entries.len(), Ordering::Relaxed);
        entries.iter().any(|(ip, _)| *ip == peer)
    }

    fn add(&self, peer: IpAddr) {
        let mut entries = self.entries();
        entries.retain(|(ip, _)| *ip != peer);
        if entries.len() == NARROW_MAX {
            entries.remove(0);
        }
        entries.push((peer, std::time::Instant::now() + NARROW_TIME));
        self.count.store(entries.len(), Ordering::Relaxed);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        forks::remove(self.io.as_raw_fd());
    }
}

/// The sockets of an adapter. The first one makes its connections.
struct UdpPort {
    /// Address of all sockets, with the port of the first one.
    bound: SocketAddr,
    /// Address that the adapter gives as its own; not `bound` if that is a wildcard.
    told: IpAddr,
    sockets: RwLock<Vec<Socket>>,
    /// Receive buffer that each socket asks for, in bytes.
    receive_buffer: usize,
    /// Pollers of a thread of the program and of the adapter's thread, if it has one.
    pollers: Option<[Arc<Poller>; 2]>,
    /// The socket to read first, times [`STREAK`], plus the datagrams that it gave in a row.
    next: AtomicUsize,
    narrow: NarrowPaths,
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

    fn sockets(&self) -> std::sync::RwLockReadGuard<'_, Vec<Socket>> {
        self.sockets.read().unwrap_or_else(PoisonError::into_inner)
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
fn report(socket: RawFd, buffer: &mut [u8]) -> nix::Result<Option<(usize, Undelivered)>> {
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

impl Port for UdpPort {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.told, self.bound.port())
    }

    fn route(&self, mut peer: SocketAddr) -> Option<Route> {
        let near = match peer {
            SocketAddr::V4(_) if self.bound.is_ipv6() => (Ipv4Addr::UNSPECIFIED, 0).into(),
            _ => self.at(0),
        };
        // Connecting sends nothing; it selects the way.
        let probe = UdpSocket::bind(near).ok()?;
        peer.set_port(UDP_PORT);
        probe.connect(peer).ok()?;
        let source = probe.local_addr().ok()?.ip();
        let mtu = if peer.ip().is_loopback() {
            Some(LOOPBACK_MTU)
        } else if peer.is_ipv4() {
            nix::sys::socket::getsockopt(&probe, sockopt::IpMtu).ok()
        } else {
            ipv6_mtu(&probe)
        };
        // Without an answer, the MTU of Ethernet.
        let mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(1500);
        let mtu = PathMtu::for_interface(mtu)?;
        (source.is_ipv4() == peer.is_ipv4()).then_some(Route { source, mtu })
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
            _ => ClaimError::Refused,
        })?;
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        self.register(&socket).map_err(|_| ClaimError::Refused)?;
        sockets.push(socket);
        Ok(())
    }

    fn release(&self, port: u16) {
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
        if self.narrow.contains(peer) {
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
            self.narrow.add(peer);
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
                let mut meta = [RecvMeta::default()];
                let mut slices = [IoSliceMut::new(buffer)];
                let received = socket
                    .state
                    .recv((&socket.io).into(), &mut slices, &mut meta);
                let [meta] = meta;
                match received {
                    // The poller reports new data once, so the socket is read until it is empty.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(1) if meta.len > 0 => {
                        let own = meta.dst_ip.unwrap_or(self.bound.ip()).to_canonical();
                        let own = SocketAddr::new(own, socket.port);
                        let peer = canonical(meta.addr);
                        if let Some(flow) = Flow::between(peer, own) {
                            // The next socket after a full streak, so that none waits for long.
                            let streak = if offset == 0 { next % STREAK + 1 } else { 1 };
                            let next = index * STREAK + streak;
                            self.next.store(next, Ordering::Relaxed);
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

    fn undelivered(&self, buffer: &mut [u8]) -> Option<(usize, Undelivered)> {
        let sockets = self.sockets();
        for socket in sockets.iter() {
            for _ in 0..SKIPPED {
                match report(socket.io.as_raw_fd(), buffer) {
                    Ok(Some(report)) => return Some(report),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
        }
        None
    }

    fn sleep(&self, pause: Option<Duration>) -> Option<Awakening> {
        let [poller, _] = self.pollers.as_ref()?;
        if pause.is_some_and(|pause| pause < SHORT_PAUSE) {
            return None;
        }
        let wakeup = poller.sleep(pause);
        Some(match wakeup.arrivals {
            true => Awakening::Arrivals {
                reports: wakeup.reports,
            },
            false => Awakening::Nothing,
        })
    }

    fn wake(&self) {
        if let Some([poller, _]) = &self.pollers {
            poller.wake();
        }
    }
}

/// The thread that serves an adapter.
#[derive(Debug)]
pub(crate) struct Service {
    poller: Arc<Poller>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread of an adapter.
    fn start(shared: &Arc<Shared>, poller: Arc<Poller>) -> io::Result<Self> {
        let wakes = Arc::clone(&poller);
        shared.set_on_deadline(Box::new(move || wakes.wake()));
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let shared = Arc::clone(shared);
        let sleeps_on = Arc::clone(&poller);
        // The thread begins with the mask of this one: signals are for the threads of the program.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = std::thread::Builder::new()
            .name("roce".into())
            .spawn(move || serve(&shared, &sleeps_on, &stopped));
        // It was the mask of this thread.
        let _ = mask.thread_set_mask();
        Ok(Self {
            poller,
            stops,
            thread: Some(thread?),
        })
    }

    /// Returns true on the thread itself.
    pub(crate) fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        self.thread.as_ref().map(|thread| thread.thread().id()) == Some(current)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.poller.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

/// Serves an adapter until it is closed and its peers have answered.
fn serve(shared: &Shared, poller: &Poller, stops: &AtomicBool) {
    let mut end = None;
    let mut more = false;
    let mut port_sleeps = 0;
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
        let wakeup = poller.sleep(pause);
        *shared.sleeps_until() = None;
        more = shared.drive(more || wakeup.reports);
        let slept = std::mem::replace(&mut port_sleeps, shared.port_sleeps());
        if !more && slept != port_sleeps && !stops.load(Ordering::Acquire) {
            // A thread of the program takes packets now and then, and would find the next ones
            // before this one does: to be woken for each would cost as much again.
            std::thread::sleep(LEFT_ALONE);
        }
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
        let port = UdpPort {
            bound: first.io.local_addr()?,
            told: if address.ip().is_unspecified() {
                representative(address.ip())
            } else {
                address.ip()
            },
            sockets: RwLock::default(),
            receive_buffer: options.receive_buffer,
            pollers: pollers.clone(),
            next: AtomicUsize::new(0),
            narrow: NarrowPaths::default(),
        };
        port.register(&first)?;
        port.sockets
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(first);
        let clock = (!options.polled).then_some(ThreadWait::clock as fn() -> Instant);
        let mut backend = Self::new(Box::new(port), options, clock, Some(forks::generation()));
        if let Some([_, poller]) = pollers {
            let service = Service::start(backend.shared(), poller)?;
            backend.set_service(service);
        }
        Ok(backend)
    }
}
