//! Two devices with a queue pair each, on a wire; time is the test's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use backend_roce::proto::PathMtu;
use backend_roce::{
    Data, DeviceCompletion, DeviceQueue, Operation, PairOptions, Post, PostError,
    ReceiveAttributes, RegionAccess, RemoteRights, RoceDevice, RoceOptions, SendAttributes,
};
use dat_core::backend::{ControlEvent, DomainKey, RemoteRange, Segment};
use dat_core::flags::DtoStatus;
use dat_core::memory::Region;
use dat_core::time::Instant;

use super::wire::Wire;

pub const LENGTH: usize = 1 << 16;

pub const ALL: RemoteRights = RemoteRights {
    read: true,
    write: true,
    atomic: true,
};

pub const REGION: RegionAccess = RegionAccess {
    local_write: true,
    remote: ALL,
    address: None,
};

/// A device with a domain, a queue and a region.
pub struct Side {
    pub device: RoceDevice,
    pub address: IpAddr,
    pub domain: DomainKey,
    pub queue: DeviceQueue,
    pub bytes: &'static [AtomicU8],
    pub key: u32,
    pub events: Arc<Mutex<Vec<ControlEvent>>>,
}

impl Side {
    pub fn new(wire: &Wire, host: u8) -> Self {
        let address = Ipv4Addr::new(10, 0, 0, host).into();
        let port = wire.port(SocketAddr::new(address, 61_000 + u16::from(host)));
        let device = RoceDevice::over(port, RoceOptions::new([host; 16]));
        let events = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&events);
        device.on_event(move |event| list.lock().expect("not poisoned").push(event));
        let domain = device.create_domain().expect("a domain");
        let queue = device.create_queue(64).expect("a queue");
        let bytes: Vec<AtomicU8> = (0..LENGTH).map(|_| AtomicU8::new(0)).collect();
        let bytes: &'static [AtomicU8] = bytes.leak();
        let key = device.register(domain, &Region::from_static(bytes), REGION);
        Self {
            device,
            address,
            domain,
            queue,
            bytes,
            key: key.expect("a region"),
            events,
        }
    }

    pub fn options(&self) -> PairOptions<'_> {
        PairOptions {
            domain: self.domain,
            sends: &self.queue,
            receives: &self.queue,
            shared: None,
            send_depth: 8,
            receive_depth: 8,
            inline: 64,
        }
    }

    pub fn pair(&self) -> u32 {
        self.device.create_pair(&self.options()).expect("a pair")
    }

    pub fn fill(&self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.bytes[at..].iter().zip(bytes) {
            place.store(*byte, Ordering::Relaxed);
        }
    }

    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let bytes = self.bytes[at..at + length].iter();
        bytes.map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    pub fn segment(&self, at: usize, length: usize) -> Segment {
        Segment {
            address: self.bytes.as_ptr() as u64 + at as u64,
            length: length as u32,
            key: self.key,
        }
    }

    pub fn remote(&self, at: usize) -> RemoteRange {
        RemoteRange {
            address: self.bytes.as_ptr() as u64 + at as u64,
            key: self.key,
        }
    }

    pub fn receive(&self, qpn: u32, token: u64, at: usize, length: usize) {
        let segments = [self.segment(at, length)];
        let posted = self.device.post_receive(qpn, token, &segments);
        posted.expect("a receive");
    }

    pub fn post(&self, qpn: u32, post: &Post<'_>) -> Result<(), PostError> {
        self.device.post(qpn, |posts| posts.post(post))?
    }

    /// Posts an operation on `length` bytes at `at`; its token is that position.
    pub fn start(&self, qpn: u32, operation: Operation, at: usize, length: usize) {
        let segments = [self.segment(at, length)];
        let posted = self.post(qpn, &post(at as u64, operation, &segments));
        posted.expect("a request");
    }

    pub fn take(&self) -> Vec<DeviceCompletion> {
        let mut taken = Vec::new();
        let polled = self.device.poll(&self.queue, 64, |done| taken.push(done));
        polled.expect("a queue that works");
        taken
    }
}

pub fn post<'a>(token: u64, operation: Operation, segments: &'a [Segment]) -> Post<'a> {
    Post {
        token,
        operation,
        data: Data::Segments(segments),
        receiver: None,
        silent: false,
        fence: false,
        solicited: false,
    }
}

pub fn receives(peer: &Side, peer_qpn: u32, own: IpAddr) -> ReceiveAttributes {
    ReceiveAttributes {
        local: own,
        peer: SocketAddr::new(peer.address, 0),
        peer_qpn,
        expects: 100,
        mtu: PathMtu::Bytes1024,
        resources: 4,
        not_ready_timer: 1,
        rights: ALL,
    }
}

pub const SENDS: SendAttributes = SendAttributes {
    sends: 100,
    depth: 4,
    timeout: 14,
    retries: 7,
    not_ready_retries: 7,
};

/// Two sides with an attached pair each.
pub struct Bed {
    pub wire: Wire,
    pub sides: [Side; 2],
    pub qpns: [u32; 2],
    pub now: u64,
}

impl Bed {
    pub fn unattached() -> Self {
        let wire = Wire::default();
        let sides = [Side::new(&wire, 1), Side::new(&wire, 2)];
        let qpns = [sides[0].pair(), sides[1].pair()];
        Self {
            wire,
            sides,
            qpns,
            now: 0,
        }
    }

    pub fn new() -> Self {
        let bed = Self::unattached();
        bed.attach(ALL, SENDS);
        bed
    }

    /// Attaches both pairs; the second one grants `rights`, the first one sends by `sends`.
    pub fn attach(&self, rights: RemoteRights, sends: SendAttributes) {
        let [one, two] = &self.sides;
        let mut with = receives(two, self.qpns[1], one.address);
        let done = one.device.ready_to_receive(self.qpns[0], &with);
        done.expect("ready to receive");
        with = receives(one, self.qpns[0], two.address);
        with.rights = rights;
        let done = two.device.ready_to_receive(self.qpns[1], &with);
        done.expect("ready to receive");
        for (side, qpn, with) in [(one, self.qpns[0], sends), (two, self.qpns[1], SENDS)] {
            side.device
                .ready_to_send(qpn, &with)
                .expect("ready to send");
        }
    }

    /// Lets 100 us pass for both sides.
    pub fn step(&mut self) {
        self.now += 100;
        for side in &self.sides {
            side.device.driver().drive(Instant::from_micros(self.now));
        }
    }

    /// Lets time pass until a side has `count` completions, at most 100 s.
    pub fn completions(&mut self, side: usize, count: usize) -> Vec<DeviceCompletion> {
        let mut all = Vec::new();
        for _ in 0..1_000_000 {
            all.extend(self.sides[side].take());
            if all.len() >= count {
                return all;
            }
            self.step();
        }
        panic!("{all:?}");
    }

    /// Posts an operation of the first side; returns its status.
    pub fn status(&mut self, operation: Operation, length: usize) -> DtoStatus {
        self.sides[0].start(self.qpns[0], operation, 0, length);
        self.completions(0, 1)[0].status
    }
}
