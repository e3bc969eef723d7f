//! A network in memory, with virtual time, and the test bed over it.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::exceptions::exception;
use backend_roce::port::{Arrival, ClaimError, Port, Route, Undelivered};
use backend_roce::proto::PathMtu;
use backend_roce::proto::icrc::Flow;
use backend_roce::{RoceBackend, RoceDriver, RoceOptions};
use dat_core::attributes::IaAddress;
use dat_core::backend::BackendError;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{ExtendedTestbed, RsmTestbed, Testbed};

/// The longest wait that counts as a step, in microseconds.
const SOON: u32 = 1_000;

/// Length of an acknowledgement in bytes.
const ACKNOWLEDGEMENT: usize = 20;

/// A run of packets on its way.
struct Datagrams {
    flow: Flow,
    packets: Vec<u8>,
    segment: usize,
}

/// Datagrams for an adapter, and the beginnings of its own that were not delivered.
#[derive(Default)]
struct Inbox {
    arrived: VecDeque<Datagrams>,
    undelivered: VecDeque<(Vec<u8>, Undelivered)>,
}

/// The wire: datagrams on their way, and the owner of each socket address.
#[derive(Default)]
struct Wire {
    owners: HashMap<SocketAddr, usize>,
    under_way: VecDeque<Datagrams>,
    /// Set if several packets may leave in one send.
    joins: bool,
    /// All packets that were sent.
    log: Vec<(Flow, Vec<u8>)>,
    /// An address that others see as another one.
    translated: Option<(SocketAddr, SocketAddr)>,
    /// Set if its earlier ports lead to it, too.
    keeps_ports: bool,
    /// An address that nothing arrives at.
    silent: Option<IpAddr>,
    /// A socket whose packets get lost.
    mute: Option<SocketAddr>,
    /// Path MTUs of interfaces that differ from the usual one.
    path_mtus: HashMap<IpAddr, PathMtu>,
    /// Sockets that drop packets which they have no room for.
    buffers: Option<Buffers>,
    /// Loses, repeats, reorders and damages packets; they are then not in the log.
    faults: Option<Faults>,
    /// Time of the last step in which time passed.
    now: Option<Instant>,
    /// Addresses whose packets leave late.
    slow: BTreeMap<IpAddr, Slow>,
    /// Peers that adapters have told of, as unanswered.
    unanswered: Vec<(SocketAddr, usize)>,
    /// By adapter.
    inboxes: Vec<Inbox>,
}

/// Packets of an address that leave late.
struct Slow {
    /// Microseconds after which each of them may leave, and between two of them.
    delay: u32,
    period: u32,
    /// Time at which the next one may leave.
    next: Instant,
    /// Packets with the time at which they may leave.
    waiting: VecDeque<(Instant, Datagrams)>,
}

/// Socket buffers, with the room that Linux counts for a packet.
struct Buffers {
    limit: usize,
    /// Most bytes that were in one of them.
    most: usize,
    dropped: usize,
}

impl Buffers {
    /// Returns the bytes that a packet takes in a buffer.
    fn room(packet: &[u8]) -> usize {
        256 + (packet.len() + 384).next_power_of_two().max(576)
    }

    /// Drops the packets of a run that no room is left for; `used` is the room of earlier ones.
    fn admit(&mut self, used: &mut usize, run: &mut Datagrams) {
        let mut admitted = 0;
        for packet in run.packets.chunks(run.segment) {
            if *used + Self::room(packet) > self.limit {
                self.dropped += run.packets[admitted..].chunks(run.segment).len();
                break;
            }
            *used += Self::room(packet);
            admitted += packet.len();
        }
        run.packets.truncate(admitted);
        self.most = self.most.max(*used);
    }
}

/// Faults of a network, in parts of 1,000 packets.
pub(crate) struct Faults {
    pub(crate) random: fastrand::Rng,
    pub(crate) lost: u32,
    pub(crate) repeated: u32,
    pub(crate) reordered: u32,
    pub(crate) damaged: u32,
}

impl Faults {
    /// Puts the packets of a run on the wire, some of them twice, elsewhere or not at all.
    fn apply(&mut self, run: &Datagrams, under_way: &mut VecDeque<Datagrams>) {
        for packet in run.packets.chunks(run.segment) {
            let mut hits = |parts| self.random.u32(..1000) < parts;
            let (lost, repeated) = (hits(self.lost), hits(self.repeated));
            let (reordered, damaged) = (hits(self.reordered), hits(self.damaged));
            if lost {
                continue;
            }
            let mut packets = packet.to_vec();
            if damaged {
                let at = self.random.usize(..packets.len());
                packets[at] ^= self.random.u8(1..);
            }
            for _ in 0..=u32::from(repeated) {
                let end = under_way.len();
                let place = if reordered {
                    self.random.usize(..=end)
                } else {
                    end
                };
                let datagrams = Datagrams {
                    flow: run.flow,
                    packets: packets.clone(),
                    segment: packets.len(),
                };
                under_way.insert(place, datagrams);
            }
        }
    }
}

type Shared = Arc<Mutex<Wire>>;

fn lock(wire: &Shared) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// Returns the addresses that the receiver sees.
    fn translate(&self, flow: Flow) -> Flow {
        let Some((inside, outside)) = self.translated else {
            return flow;
        };
        let (mut source, mut destination) = (flow.source(), flow.destination());
        if source == inside {
            source = outside;
        }
        if destination == outside || self.keeps_ports && destination.ip() == outside.ip() {
            destination = inside;
        }
        Flow::between(source, destination).expect("addresses of one family")
    }

    /// Puts packets on the wire; all but messages of a slow address wait.
    fn put(&mut self, run: Datagrams) {
        let slow = self.slow.get_mut(&run.flow.source().ip());
        let Some(slow) = slow.filter(|_| !is_management(&run.packets)) else {
            self.under_way.push_back(run);
            return;
        };
        let time = after(self.now.unwrap_or(Instant::ZERO), slow.delay);
        for packet in run.packets.chunks(run.segment) {
            let packet = Datagrams {
                flow: run.flow,
                packets: packet.to_vec(),
                segment: packet.len(),
            };
            slow.waiting.push_back((time, packet));
        }
    }

    /// Lets packets of slow addresses leave whose time has come.
    fn release(&mut self, now: Instant) {
        self.now = Some(now);
        for slow in self.slow.values_mut() {
            while slow.next <= now
                && let Some((_, packet)) = slow.waiting.pop_front_if(|(time, _)| *time <= now)
            {
                slow.next = after(now, slow.period);
                self.under_way.push_back(packet);
            }
        }
    }

    /// Returns the length of the next run of packets.
    fn next_length(&self) -> Option<usize> {
        Some(self.under_way.front()?.packets.len())
    }

    /// Moves the next datagram to its receiver; without one, reports a refusal to its sender.
    ///
    /// With buffers, moves all datagrams, as far as there is room.
    fn step(&mut self) -> bool {
        let Some(mut buffers) = self.buffers.take() else {
            return self.move_next();
        };
        let has_moved = !self.under_way.is_empty();
        let mut used = HashMap::new();
        while let Some(run) = self.under_way.front_mut() {
            let used = used.entry(run.flow.destination()).or_default();
            buffers.admit(used, run);
            if run.packets.is_empty() {
                self.under_way.pop_front();
            } else {
                self.move_next();
            }
        }
        self.buffers = Some(buffers);
        has_moved
    }

    /// Moves the next datagram.
    fn move_next(&mut self) -> bool {
        let Some(mut datagrams) = self.under_way.pop_front() else {
            return false;
        };
        datagrams.flow = self.translate(datagrams.flow);
        let flow = &datagrams.flow;
        let (source, destination) = (flow.source(), flow.destination());
        if self.silent == Some(destination.ip()) || self.mute == Some(source) {
            return true;
        }
        if let Some(owner) = self.owners.get(&destination) {
            self.inboxes[*owner].arrived.push_back(datagrams);
        } else if let Some(owner) = self.owners.get(&source) {
            let quoted = datagrams.packets.len().min(64);
            let quoted = datagrams.packets[..quoted].to_vec();
            let is_host = self
                .owners
                .keys()
                .any(|owned| owned.ip() == destination.ip());
            let reason = match is_host {
                true => Undelivered::NoPort,
                false => Undelivered::NoHost,
            };
            self.inboxes[*owner].undelivered.push_back((quoted, reason));
        }
        true
    }
}

fn after(now: Instant, period: u32) -> Instant {
    now.after(period).expect("a time that comes")
}

/// The socket of an adapter.
struct SimulatedPort {
    wire: Shared,
    number: usize,
    address: SocketAddr,
}

/// Returns true for a packet to queue pair 1.
fn is_management(packet: &[u8]) -> bool {
    packet.get(5..8) == Some(&[0, 0, 1])
}

impl Port for SimulatedPort {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn route(&self, peer: SocketAddr) -> Result<Route, BackendError> {
        if peer.is_ipv4() != self.address.is_ipv4() {
            return Err(BackendError::Address);
        }
        Ok(Route {
            source: self.address.ip(),
            mtu: lock(&self.wire)
                .path_mtus
                .get(&self.address.ip())
                .copied()
                .unwrap_or(PathMtu::Bytes1024),
        })
    }

    fn claim(&self, port: u16) -> Result<(), ClaimError> {
        let address = SocketAddr::new(self.address.ip(), port);
        let owners = &mut lock(&self.wire).owners;
        if owners.contains_key(&address) {
            return Err(ClaimError::InUse);
        }
        owners.insert(address, self.number);
        Ok(())
    }

    fn release(&self, port: u16) {
        let address = SocketAddr::new(self.address.ip(), port);
        lock(&self.wire).owners.remove(&address);
    }

    fn run_packets(&self) -> u16 {
        if lock(&self.wire).joins { 64 } else { 1 }
    }

    fn send(&self, flow: &Flow, packets: &[u8], segment: usize) {
        // A kernel drops a message of connection management that another one follows.
        let is_single = packets.len() <= segment;
        assert!(is_single || !packets.chunks(segment).any(is_management));
        let mut wire = lock(&self.wire);
        let Wire {
            under_way,
            log,
            faults,
            ..
        } = &mut *wire;
        let run = Datagrams {
            flow: *flow,
            packets: packets.to_vec(),
            segment,
        };
        if let Some(faults) = faults {
            faults.apply(&run, under_way);
            return;
        }
        let sent = packets
            .chunks(segment)
            .map(|packet| (*flow, packet.to_vec()));
        log.extend(sent);
        wire.put(run);
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let arrived = lock(&self.wire).inboxes[self.number].arrived.pop_front()?;
        let length = arrived.packets.len();
        buffer[..length].copy_from_slice(&arrived.packets);
        Some(Arrival {
            flow: arrived.flow,
            length,
            segment: arrived.segment,
            local: None,
            is_split: false,
        })
    }

    fn undelivered(&self, buffer: &mut [u8]) -> Option<(usize, Undelivered)> {
        let (quoted, reason) = lock(&self.wire).inboxes[self.number]
            .undelivered
            .pop_front()?;
        buffer[..quoted.len()].copy_from_slice(&quoted);
        Some((quoted.len(), reason))
    }

    fn unanswered(&self, peer: SocketAddr, length: usize) {
        lock(&self.wire).unanswered.push((peer, length));
    }
}

impl Drop for SimulatedPort {
    fn drop(&mut self) {
        let number = self.number;
        lock(&self.wire).owners.retain(|_, owner| *owner != number);
    }
}

/// Adapters on a network in memory.
pub(crate) struct RoceBed {
    wire: Shared,
    drivers: std::cell::RefCell<Vec<RoceDriver>>,
    now: Cell<Instant>,
    /// Set if the last step did nothing.
    was_idle: Cell<bool>,
    /// Option of the devices that are made next.
    keep_alive: Cell<Option<Duration>>,
}

impl RoceBed {
    pub(crate) fn new() -> Self {
        Self {
            wire: Shared::default(),
            drivers: std::cell::RefCell::default(),
            now: Cell::new(Instant::ZERO),
            was_idle: Cell::new(false),
            keep_alive: Cell::new(None),
        }
    }

    /// Lets the devices that are made next probe their peers.
    pub(crate) fn keep_alive(&self, period: Duration) {
        self.keep_alive.set(Some(period));
    }

    /// Connection requests that may wait at a device.
    pub(crate) const BACKLOG: usize = 40;

    /// Returns the ports that are claimed at an address.
    pub(crate) fn ports(&self, address: IpAddr) -> Vec<u16> {
        let wire = lock(&self.wire);
        let here = wire.owners.keys().filter(|owned| owned.ip() == address);
        here.map(SocketAddr::port).collect()
    }

    /// Returns all packets that were sent.
    pub(crate) fn log(&self) -> Vec<(Flow, Vec<u8>)> {
        lock(&self.wire).log.clone()
    }

    /// Returns the peers that ports were told of since the last call, as unanswered, with lengths.
    pub(crate) fn unanswered(&self) -> Vec<(SocketAddr, usize)> {
        std::mem::take(&mut lock(&self.wire).unanswered)
    }

    /// Lets others see an address as another one.
    pub(crate) fn translate(&self, inside: SocketAddr, outside: SocketAddr) {
        lock(&self.wire).translated = Some((inside, outside));
    }

    /// Lets what is sent to an earlier port of a translated address arrive.
    pub(crate) fn keep_ports(&self) {
        lock(&self.wire).keeps_ports = true;
    }

    /// Lets nothing arrive at an address.
    pub(crate) fn silence(&self, address: IpAddr) {
        lock(&self.wire).silent = Some(address);
    }

    /// Loses what a socket sends.
    pub(crate) fn mute(&self, socket: SocketAddr) {
        lock(&self.wire).mute = Some(socket);
    }

    /// Ends the silence of an address.
    pub(crate) fn hear_all(&self) {
        lock(&self.wire).silent = None;
    }

    /// Loses all packets that are under way.
    pub(crate) fn lose_all(&self) {
        lock(&self.wire).under_way.clear();
    }

    /// Closes a port of an address, as if no socket had it.
    pub(crate) fn close_port(&self, address: SocketAddr) {
        lock(&self.wire).owners.remove(&address);
    }

    /// Lets devices that are made from now on send several packets at once.
    pub(crate) fn join_packets(&self) {
        lock(&self.wire).joins = true;
    }

    /// Sets the path MTU of the interface with an address; it is 1024 bytes otherwise.
    pub(crate) fn set_path_mtu(&self, address: IpAddr, mtu: PathMtu) {
        lock(&self.wire).path_mtus.insert(address, mtu);
    }

    /// Lets packets travel all at once from now on, into socket buffers of `bytes` bytes.
    pub(crate) fn limit_buffers(&self, bytes: usize) {
        lock(&self.wire).buffers = Some(Buffers {
            limit: bytes,
            most: 0,
            dropped: 0,
        });
    }

    /// Returns the most bytes that were in a socket buffer, and the number of dropped packets.
    pub(crate) fn buffered(&self) -> (usize, usize) {
        let wire = lock(&self.wire);
        let buffers = wire.buffers.as_ref().expect("limited buffers");
        (buffers.most, buffers.dropped)
    }

    /// Lets the packets of an address leave `delay` µs late from now on, and `period` µs apart.
    pub(crate) fn slow_down(&self, address: IpAddr, delay: u32, period: u32) {
        let slow = Slow {
            delay,
            period,
            next: after(self.now.get(), period),
            waiting: VecDeque::new(),
        };
        lock(&self.wire).slow.insert(address, slow);
    }

    /// Lets the packets of a slow address leave at once again.
    pub(crate) fn speed_up(&self, address: IpAddr) {
        let mut wire = lock(&self.wire);
        let slow = wire.slow.remove(&address).expect("a slow address");
        let waiting = slow.waiting.into_iter();
        wire.under_way.extend(waiting.map(|(_, packet)| packet));
    }

    /// Lets `period` µs pass, in which the packets under way arrive; answers stay under way.
    pub(crate) fn pass(&self, period: u32) {
        let now = after(self.now.get(), period);
        self.now.set(now);
        let mut wire = lock(&self.wire);
        wire.release(now);
        for _ in 0..wire.under_way.len() {
            wire.move_next();
        }
        drop(wire);
        for driver in &*self.drivers.borrow() {
            driver.drive(now);
        }
    }

    /// Lets the network have faults from now on.
    pub(crate) fn disturb(&self, faults: Faults) {
        lock(&self.wire).faults = Some(faults);
    }

    /// Moves packets, or the time to the next timer; false if there is neither.
    pub(crate) fn go_on(&self) -> bool {
        if self.step() {
            return true;
        }
        let drivers = self.drivers.borrow();
        let next = drivers.iter().filter_map(RoceDriver::deadline).min();
        next.inspect(|next| self.now.set(self.now.get().max(*next)))
            .is_some()
    }

    /// Moves the next run of packets; what its receiver sends stays under way.
    pub(crate) fn deliver_one(&self) {
        lock(&self.wire).move_next();
        for driver in &*self.drivers.borrow() {
            driver.drive(self.now.get());
        }
    }

    /// Puts a packet on the wire.
    pub(crate) fn inject(&self, flow: &Flow, packet: &[u8]) {
        lock(&self.wire).under_way.push_back(Datagrams {
            flow: *flow,
            packets: packet.to_vec(),
            segment: packet.len().max(1),
        });
    }

    /// Makes a device at an address, with the first UDP port that is free there.
    pub(crate) fn device_on(&self, address: IpAddr) -> RoceBackend {
        let mut drivers = self.drivers.borrow_mut();
        let number = drivers.len();
        let mut wire = lock(&self.wire);
        let mut ports = (4791..).map(|port| SocketAddr::new(address, port));
        let address = ports.find(|address| !wire.owners.contains_key(address));
        let address = address.expect("a free port");
        wire.owners.insert(address, number);
        wire.inboxes.push(Default::default());
        drop(wire);
        let port = SimulatedPort {
            wire: Arc::clone(&self.wire),
            number,
            address,
        };
        let mut options = RoceOptions::new([number as u8; 16]);
        options.connections = 128;
        options.keys = 1024;
        options.backlog = Self::BACKLOG;
        options.not_ready_timer = 12;
        options.keep_alive = self.keep_alive.get();
        let backend = RoceBackend::over(port, options);
        drivers.push(backend.driver());
        backend
    }
}

impl Testbed for RoceBed {
    type Backend = RoceBackend;
    type Lock = HostLock;

    fn device(&self) -> RoceBackend {
        let number = self.drivers.borrow().len();
        let address = Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8);
        self.device_on(address.into())
    }

    fn now(&self) -> Instant {
        self.now.get()
    }

    fn step(&self) -> bool {
        let mut moved = lock(&self.wire).step();
        if !moved {
            // A peer without a receive is asked again soon; nothing else is worth a step.
            let soon = self.now.get().after(SOON);
            let drivers = self.drivers.borrow();
            let next = drivers.iter().filter_map(RoceDriver::deadline).min();
            if let Some(next) = next.filter(|next| Some(*next) <= soon) {
                self.now.set(self.now.get().max(next));
                moved = true;
            }
        }
        let drive = || {
            for driver in &*self.drivers.borrow() {
                driver.drive(self.now.get());
            }
        };
        drive();
        // Acknowledgements travel in the step that caused them.
        while lock(&self.wire).next_length() == Some(ACKNOWLEDGEMENT) {
            lock(&self.wire).step();
            drive();
        }
        // Idle from the second step without an event on.
        let was_idle = self.was_idle.replace(!moved);
        moved || !was_idle
    }

    fn reset_idle_count(&self) {
        self.was_idle.set(false);
    }

    fn skip_reason(&self, test: &str) -> Option<String> {
        exception("roce", "", test)
    }

    fn advance(&self, to: Instant) {
        loop {
            while self.step() {}
            let deadlines = self.drivers.borrow();
            let next = deadlines.iter().filter_map(RoceDriver::deadline).min();
            match next.filter(|next| *next <= to) {
                Some(next) => self.now.set(self.now.get().max(next)),
                None => break,
            }
        }
        self.now.set(to);
    }
}

impl ExtendedTestbed for RoceBed {
    fn extended_device(&self) -> RoceBackend {
        self.device()
    }

    fn extended_non_coherent_device(&self) -> RoceBackend {
        unreachable!("the suite is told that there is none")
    }
}

impl RsmTestbed for RoceBed {
    fn device_at(&self, address: IaAddress) -> RoceBackend {
        let address = address.socket_address().expect("an address of this bed");
        self.device_on(address.ip())
    }
}
