//! A peer that sends any packets to a RoCEv2 adapter, over a port in memory.
//!
//! The peer connects, and then sends packets with any opcode, PSN, key, address and length, and
//! with a right ICRC. The consumer of the adapter posts and deregisters meanwhile. A model knows
//! the bytes that are granted: no other byte changes, and no secret byte leaves the adapter.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backend_roce::port::{Arrival, ClaimError, Port, Route};
use backend_roce::proto::connection::{
    ConnectRequest, Connection, ConnectionOptions, Mad, Message, PrivateData, decode_packet,
    encode_packet, service_of,
};
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::Packet;
use backend_roce::proto::{PathMtu, Psn};
use backend_roce::{
    RoceBackend, RoceCompletionQueue, RoceOptions, RoceReceiveQueue, RoceSendQueue,
};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend as _, BackendError, CompletionQueue as _, ControlEvent, DomainKey, QueuePair,
    QueuePairRequest, ReceiveRequest, RegionKeys, Registration, RemoteRange, Segment, SendFlags,
    SendOperation, SendRequest, WorkQueue as _,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::Region;
use dat_core::time::Instant;

/// Bytes of an operation in an input.
pub const OPERATION: usize = 16;
/// Most operations of an input.
const MOST: usize = 64;

const QUALIFIER: u16 = 7174;
/// Bytes of a region, and of the guard before and behind it.
const BYTES: usize = 2048;
const MTU: usize = 256;
/// Most events that the adapter may hold for its consumer.
const EVENTS: usize = 64;
/// Receives and requests that the consumer posts at most.
const POSTS: usize = 16;

/// Byte of memory that no peer may read.
const SECRET: u8 = 0xE7;
/// Byte of memory that a peer may read.
const PUBLIC: u8 = 0x11;

/// Datagrams to the adapter and from it.
#[derive(Default)]
struct Wire {
    to: VecDeque<(Flow, Vec<u8>)>,
    from: VecDeque<Vec<u8>>,
}

#[derive(Clone, Default)]
struct Cable(Arc<Mutex<Wire>>);

impl Cable {
    fn lock(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const VICTIM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4791);
const INTRUDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4791);

impl Port for Cable {
    fn address(&self) -> SocketAddr {
        VICTIM
    }

    fn route(&self, _: SocketAddr) -> Result<Route, BackendError> {
        Ok(Route {
            source: VICTIM.ip(),
            mtu: PathMtu::Bytes4096,
        })
    }

    fn claim(&self, _: u16) -> Result<(), ClaimError> {
        Ok(())
    }

    fn release(&self, _: u16) {}

    fn send(&self, _: &Flow, packets: &[u8], segment: usize) {
        let packets = packets.chunks(segment).map(<[u8]>::to_vec);
        self.lock().from.extend(packets);
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let (flow, packet) = self.lock().to.pop_front()?;
        buffer[..packet.len()].copy_from_slice(&packet);
        Some(Arrival {
            flow,
            length: packet.len(),
            segment: packet.len(),
            local: None,
            is_split: false,
        })
    }
}

/// Memory with a guard on both sides.
struct Memory {
    bytes: Vec<u8>,
    keys: Option<RegionKeys>,
    /// Set while a peer, or a receive, may change the region.
    is_open: bool,
    fill: u8,
    /// Content when the region was closed.
    closed: Vec<u8>,
}

impl Memory {
    fn new(fill: u8, is_open: bool) -> Self {
        let mut bytes = vec![SECRET; 3 * BYTES];
        bytes[BYTES..2 * BYTES].fill(fill);
        let closed = bytes[BYTES..2 * BYTES].to_vec();
        Self {
            bytes,
            keys: None,
            is_open,
            fill,
            closed,
        }
    }

    fn address(&self) -> u64 {
        self.bytes[BYTES..].as_ptr().addr() as u64
    }

    #[expect(unsafe_code, reason = "memory that outlives the adapter")]
    fn register(&mut self, victim: &mut RoceBackend, domain: DomainKey, rights: MemoryPrivileges) {
        // SAFETY: the adapter is dropped before the memory, and the model looks at it between
        // calls.
        let region = unsafe { Region::from_raw_parts(self.bytes[BYTES..].as_mut_ptr(), BYTES) };
        self.keys = victim
            .register(&Registration::new(domain, &region, rights))
            .ok();
    }

    fn segment(&self, length: u32) -> Option<Segment> {
        Some(Segment {
            address: self.address(),
            length,
            key: self.keys?.local,
        })
    }

    fn close(&mut self) {
        self.is_open = false;
        self.closed = self.bytes[BYTES..2 * BYTES].to_vec();
    }

    fn check(&self) {
        let (before, rest) = self.bytes.split_at(BYTES);
        let (region, behind) = rest.split_at(BYTES);
        assert!(before.iter().chain(behind).all(|byte| *byte == SECRET));
        assert!(self.is_open || region == self.closed, "{:#x}", self.fill);
    }
}

/// An adapter with a connected queue pair.
struct Victim {
    device: RoceBackend,
    queue: RoceCompletionQueue,
    pair: QueuePair<RoceSendQueue, RoceReceiveQueue>,
    domain: DomainKey,
    posted: usize,
}

/// The peer: what it knows of the connection.
struct Intruder {
    qpn: u32,
    /// PSN that the victim expects first.
    first: Psn,
    /// PSN of the victim's first request.
    expected: Psn,
    ids: (u32, u32),
}

fn flow() -> Flow {
    let target = SocketAddr::new(VICTIM.ip(), QUALIFIER);
    Flow::between(INTRUDER, target).expect("addresses of one family")
}

fn send(cable: &Cable, mut packet: Vec<u8>) {
    if flow().seal(0, &mut packet).is_some() {
        cable.lock().to.push_back((flow(), packet));
    }
}

fn send_mad(cable: &Cable, mad: &Mad) {
    let mut bytes = vec![0; 280];
    encode_packet(&mad.encode(), Psn::new(1), &mut bytes).expect("room");
    send(cable, bytes);
}

fn drive(victim: &Victim, now: u64) {
    victim.device.driver().drive(Instant::from_micros(now));
}

fn replies(cable: &Cable) -> Vec<Mad> {
    let packets: Vec<Vec<u8>> = cable.lock().from.drain(..).collect();
    let mads = packets.iter().filter_map(|packet| {
        let packet = Packet::decode(packet).ok()?;
        Mad::decode(decode_packet(&packet)?)
    });
    mads.collect()
}

/// Connects the intruder.
fn connect(cable: &Cable, victim: &mut Victim) -> Intruder {
    let request = ConnectRequest {
        local_id: 77,
        service: service_of(QUALIFIER),
        guid: 0x0200_0000_0000_0009,
        qpn: 0x99,
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 16,
        is_reliable: true,
        starting_psn: Psn::new(0x00FF_FFF0),
        local_response_timeout: 16,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Some(PathMtu::Bytes256),
        max_retries: 15,
        shared_receive_queue: false,
        source: INTRUDER.ip(),
        destination: VICTIM.ip(),
        source_port: 1,
        ack_timeout: 16,
        mark: None,
        private_data: PrivateData::NONE,
    };
    let now = Instant::ZERO;
    let mut side = Connection::connect(ConnectionOptions::USUAL, 5, request, now);
    send_mad(cable, &side.transmit().expect("a request"));
    drive(victim, 0);
    let key =
        std::iter::from_fn(|| victim.device.poll_control(now)).find_map(|event| match event {
            ControlEvent::ConnectionRequest { request, .. } => Some(request),
            _ => None,
        });
    let accepted = victim
        .device
        .accept(key.expect("a request"), victim.pair.key, &[]);
    accepted.expect("an acceptance");
    drive(victim, 0);
    let mut reply = None;
    for mad in replies(cable) {
        if let Message::Reply(found) = mad.message {
            reply = Some(found);
        }
        side.receive(&mad, now);
    }
    while let Some(mad) = side.transmit() {
        send_mad(cable, &mad);
    }
    drive(victim, 0);
    let reply = reply.expect("a reply");
    Intruder {
        qpn: reply.qpn,
        first: reply.starting_psn,
        expected: request.starting_psn,
        ids: (request.local_id, reply.ids.local),
    }
}

/// Writes a packet of any opcode.
fn packet(intruder: &Intruder, memories: &[Memory; 3], operation: &[u8; OPERATION]) -> Vec<u8> {
    let [
        _,
        opcode,
        psn,
        flags,
        memory,
        key,
        high,
        low,
        more,
        less,
        payload,
        fill,
        ..,
    ] = *operation;
    let opcode = match opcode {
        0..=0x17 => opcode,
        0x81 => opcode,
        other => other % 0x18,
    };
    // Headers of the opcodes, as in ROCE-10.
    let is_response = (0x0D..=0x12).contains(&opcode);
    let start = if is_response {
        intruder.expected
    } else {
        intruder.first
    };
    let psn = start.plus(psn.into()).value().to_be_bytes();
    let qpn = intruder.qpn.to_be_bytes();
    let mut bytes = vec![opcode, flags & 0x80, 0xFF, 0xFF, 0];
    bytes.extend_from_slice(&qpn[1..]);
    bytes.push(flags << 1 & 0x80);
    bytes.extend_from_slice(&psn[1..]);
    let target = &memories[usize::from(memory) % 3];
    let remote = target.keys.map_or(0, |keys| keys.remote);
    let remote = if key < 0xC0 {
        remote
    } else {
        remote ^ 1 << (key & 31)
    };
    // Around the beginning and the end of a region.
    let offset = i64::from(i16::from_be_bytes([high, low]) % (BYTES as i16 + 64));
    let address = target.address().wrapping_add_signed(offset);
    let length = u32::from(u16::from_be_bytes([more, less]));
    if matches!(opcode, 0x06 | 0x0A | 0x0B | 0x0C | 0x13 | 0x14) {
        bytes.extend_from_slice(&address.to_be_bytes());
        bytes.extend_from_slice(&remote.to_be_bytes());
        if opcode < 0x13 {
            bytes.extend_from_slice(&length.to_be_bytes());
        } else {
            bytes.extend_from_slice(&[fill; 16]);
        }
    }
    if matches!(opcode, 0x0D | 0x0F | 0x10 | 0x11 | 0x12) {
        bytes.extend_from_slice(&[flags & 0x7F, 0, 0, 1]);
    }
    if opcode == 0x12 {
        bytes.extend_from_slice(&[fill; 8]);
    }
    if matches!(opcode, 0x03 | 0x05 | 0x09 | 0x0B | 0x16 | 0x17) {
        bytes.extend_from_slice(&[fill; 4]);
    }
    // Full packets are frequent; acknowledgements and requests of data have no payload.
    let payload = match payload {
        _ if matches!(opcode, 0x0C | 0x11..=0x14) => 0,
        0..=0x7F => usize::from(payload),
        _ => MTU + usize::from(payload & 4),
    };
    let pad = payload.wrapping_neg() & 3;
    bytes[1] |= (pad as u8) << 4;
    bytes.resize(bytes.len() + payload, fill);
    bytes.resize(bytes.len() + pad + 4, 0);
    bytes
}

/// Runs an input; panics if the adapter breaks a promise.
pub fn run(input: &[u8]) {
    let cable = Cable::default();
    let mut options = RoceOptions::new([7; 16]);
    options.connections = 64;
    options.keys = 256;
    let mut device = RoceBackend::over(cable.clone(), options);
    let domain = device.create_domain().expect("a zone");
    let queue = device.create_completion_queue(0, 256).expect("a queue");
    let attributes = EpAttributes {
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        ..EpAttributes::DEFAULT
    };
    let mut request = QueuePairRequest::new(1, domain, attributes);
    (request.request_queue, request.receive_queue) = (Some(0), Some(0));
    let pair = device.create_queue_pair(&request).expect("a queue pair");
    device.listen(1, Some(QUALIFIER.into())).expect("a port");
    // Dropped after the adapter, as the order of the variables says.
    let mut memories = [
        Memory::new(PUBLIC, true),
        Memory::new(PUBLIC, false),
        Memory::new(SECRET, false),
    ];
    let rights = [
        MemoryPrivileges::ALL,
        MemoryPrivileges::LOCAL_READ | MemoryPrivileges::REMOTE_READ,
        MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    ];
    let mut victim = Victim {
        device,
        queue,
        pair,
        domain,
        posted: 0,
    };
    for (memory, rights) in memories.iter_mut().zip(rights) {
        memory.register(&mut victim.device, victim.domain, rights);
    }
    let intruder = connect(&cable, &mut victim);
    let mut now = 1;
    for operation in input.chunks_exact(OPERATION).take(MOST) {
        let operation: &[u8; OPERATION] = operation.try_into().expect("whole operations");
        step(
            &cable,
            &mut victim,
            &intruder,
            &mut memories,
            operation,
            &mut now,
        );
        for memory in &memories {
            memory.check();
        }
        check_packets(&cable);
    }
    drop(victim);
    for memory in &memories {
        memory.check();
    }
    check_packets(&cable);
}

/// Checks that no secret byte has left: payloads have none of their own.
fn check_packets(cable: &Cable) {
    let packets: Vec<Vec<u8>> = cable.lock().from.drain(..).collect();
    // Region of 2048 bytes: 8 responses to each of few Reads, and the victim's own requests.
    assert!(packets.len() <= 1024, "{} packets", packets.len());
    for bytes in packets {
        let packet = Packet::decode(&bytes).expect("a packet");
        let is_message = decode_packet(&packet).is_some();
        let secret = packet.payload.windows(4).any(|bytes| bytes == [SECRET; 4]);
        assert!(is_message || !secret, "{packet:?}");
    }
}

fn step(
    cable: &Cable,
    victim: &mut Victim,
    intruder: &Intruder,
    memories: &mut [Memory; 3],
    operation: &[u8; OPERATION],
    now: &mut u64,
) {
    let [kind, first, second, third, ..] = *operation;
    match kind % 16 {
        // Noise behind a right queue pair.
        8 => {
            let mut bytes = operation[1..].to_vec();
            bytes.resize(12 + usize::from(second % 64) * 4 + 4, third);
            bytes[5..8].copy_from_slice(&intruder.qpn.to_be_bytes()[1..]);
            send(cable, bytes);
        }
        9 => {
            let (local, remote) = intruder.ids;
            let ids = backend_roce::proto::connection::Ids { local, remote };
            let message = match first % 4 {
                0 => Message::Ready(ids),
                1 => Message::DisconnectReply(ids),
                _ => Message::DisconnectRequest {
                    ids,
                    qpn: intruder.qpn ^ u32::from(second & 1),
                    broken: third & 1 == 1,
                },
            };
            send_mad(
                cable,
                &Mad {
                    transaction: 5,
                    message,
                },
            );
        }
        // A receive, which may be filled.
        10 if victim.posted < POSTS => {
            if let (Some(segment), Some(receives)) =
                (memories[0].segment(third.into()), &mut victim.pair.receive)
            {
                let posted = receives.post(&ReceiveRequest { token: 1 }, &[segment]);
                victim.posted += usize::from(posted.is_ok());
            }
        }
        11 if victim.posted < POSTS => {
            let remote = RemoteRange {
                key: second.into(),
                address: third.into(),
            };
            let (memory, operation) = match first % 3 {
                0 => (1, SendOperation::Send),
                1 => (1, SendOperation::RdmaWrite(remote)),
                _ => (0, SendOperation::RdmaRead(remote)),
            };
            if let Some(segment) = memories[memory].segment(u32::from(third) * 8) {
                let request = SendRequest {
                    token: 2,
                    operation,
                    flags: SendFlags::empty(),
                };
                let posted = victim.pair.send.post(&request, &[segment]);
                victim.posted += usize::from(posted.is_ok());
            }
        }
        // Nothing is reached any more.
        12 => {
            let memory = &mut memories[usize::from(first) % 3];
            if let Some(keys) = memory.keys.take() {
                victim.device.deregister(keys);
                memory.close();
            }
        }
        13 => *now += 1 << (first % 24),
        14 => {
            let mut events = 0;
            let time = Instant::from_micros(*now);
            while victim.device.poll_control(time).is_some() {
                events += 1;
            }
            assert!(events <= EVENTS, "{events} events");
            let mut completions = 0;
            while let Ok(Some(_)) = victim.queue.poll() {
                completions += 1;
            }
            assert!(completions <= POSTS, "{completions} completions");
        }
        _ => send(cable, packet(intruder, memories, operation)),
    }
    drive(victim, *now);
}
