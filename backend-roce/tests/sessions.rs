//! Whole sessions over a network with faults: connect, transfer, disconnect.

mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use backend_roce::proto::connection::{
    ConnectReply, ConnectRequest, Connection, ConnectionEvent, ConnectionOptions, Ids,
    MANAGEMENT_QPN, Mad, Message, PrivateData, State, answer_unknown, decode_packet, encode_packet,
    service_of,
};
use backend_roce::proto::icrc::Verdict;
use backend_roce::proto::memory::RemoteAddress;
use backend_roce::proto::packet::{OVERHEAD_MAX, Opcode, Packet, RnrTimer};
use backend_roce::proto::queue_pair::{Agreement, QueuePair, QueuePairOptions};
use backend_roce::proto::requester::{Completion, Operation, Request, RequestSlot, Status};
use backend_roce::proto::responder::{ReceiveCompletion, ReceiveStatus, ResourceSlot};
use backend_roce::proto::{Earliest, PathMtu, Psn};
use common::flow;
use common::memory::{BASE, Grant, PairMemory, Receives};
use common::packets::Made;
use dat_core::time::Instant;
use fastrand::Rng;

const OPTIONS: QueuePairOptions = QueuePairOptions {
    run: 1,
    window: 16,
    timeout: 8,
    is_lossless: false,
    rnr_timer: RnrTimer::from_code(8),
    remote_read: true,
    remote_write: true,
    remote_atomic: false,
};

const TIMES: ConnectionOptions = ConnectionOptions {
    response_timeout: 8,
    max_retries: 40,
    ack_timeout: 12,
};
const KEY: u32 = 77;
const SIZE: usize = 2000;

fn request() -> ConnectRequest {
    ConnectRequest {
        local_id: 0xA0,
        service: service_of(7),
        guid: 1,
        qpn: 0x11,
        responder_resources: 3,
        initiator_depth: 8,
        remote_response_timeout: 8,
        is_reliable: true,
        starting_psn: Psn::new(0xFF_FFF0),
        local_response_timeout: 8,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Some(PathMtu::Bytes512),
        max_retries: 15,
        shared_receive_queue: false,
        source: [10, 9, 1, 2].into(),
        destination: [10, 9, 1, 1].into(),
        source_port: 1,
        ack_timeout: 8,
        mark: None,
        private_data: PrivateData::NONE,
    }
}

fn reply() -> ConnectReply {
    ConnectReply {
        ids: Ids::default(),
        qpn: 0x22,
        starting_psn: Psn::new(1234),
        responder_resources: 2,
        initiator_depth: 9,
        rnr_retry_count: 6,
        shared_receive_queue: false,
        guid: 2,
        private_data: PrivateData::NONE,
    }
}

/// Spec: ROCE-61, ROCE-155..156
#[test]
fn both_sides_agree() {
    let active = Agreement {
        qpn: 0x11,
        peer_qpn: 0x22,
        sends: Psn::new(1234),
        expects: Psn::new(0xFF_FFF0),
        mtu: PathMtu::Bytes512,
        initiator_depth: 2,
        responder_resources: 3,
        retry_count: 7,
        rnr_retry_count: 6,
    };
    assert_eq!(Agreement::active(&request(), &reply()), Some(active));
    let passive = Agreement {
        qpn: 0x22,
        peer_qpn: 0x11,
        sends: Psn::new(0xFF_FFF0),
        expects: Psn::new(1234),
        initiator_depth: 3,
        responder_resources: 2,
        rnr_retry_count: 7,
        ..active
    };
    assert_eq!(Agreement::passive(&request(), &reply()), Some(passive));
    assert_eq!(
        Agreement::active(
            &ConnectRequest {
                mtu: None,
                ..request()
            },
            &reply()
        ),
        None
    );
}

/// A side of a session.
#[derive(Default)]
struct Side {
    connection: Option<Connection>,
    pair: Option<QueuePair<'static>>,
    memory: PairMemory,
    receives: Receives,
    received: Vec<ReceiveCompletion>,
    completed: Vec<Completion>,
    events: Vec<ConnectionEvent>,
    /// Answers to messages of no connection.
    strays: Vec<Mad>,
    next: u64,
}

impl Side {
    fn ready(&mut self, agreement: Option<Agreement>) {
        let slots = Box::leak(Box::new([RequestSlot::EMPTY; 8]));
        let resources = Box::leak(Box::new([ResourceSlot::EMPTY; 8]));
        let agreement = agreement.expect("a path MTU");
        self.pair = Some(QueuePair::new(&agreement, &OPTIONS, slots, resources));
    }

    fn post(&mut self, operation: Operation, buffer: Vec<u8>) -> u64 {
        let token = self.next;
        self.next += 1;
        let length = buffer.len() as u32;
        self.memory.buffers.0.insert(token, buffer);
        let request = Request {
            token,
            operation,
            length,
            fence: false,
            solicited: false,
        };
        let pair = self.pair.as_mut().expect("a queue pair");
        assert_eq!(pair.post(request), Ok(()));
        token
    }

    fn receive(&mut self, now: Instant, datagram: &[u8]) {
        match flow().verify(datagram) {
            Verdict::Right => {}
            Verdict::Recovered(identification) if identification < 128 => {}
            _ => return,
        }
        let packet = Packet::decode(datagram).expect("a packet");
        if packet.header.bth.destination == MANAGEMENT_QPN {
            let mad = decode_packet(&packet)
                .and_then(Mad::decode)
                .expect("a message");
            match (&mut self.connection, mad.message) {
                (None, Message::Request(request)) => {
                    let mut connection =
                        Connection::incoming(TIMES, mad.transaction, &request, 0xB0);
                    connection.prove();
                    // The queue pair is ready before the REP is sent.
                    self.ready(Agreement::passive(&request, &reply()));
                    assert!(connection.accept(reply(), now));
                    self.connection = Some(connection);
                }
                (None, _) => self.strays.extend(answer_unknown(&mad)),
                (Some(connection), _) => {
                    let event = connection.receive(&mad, now);
                    if let Some(ConnectionEvent::Accepted(reply)) = event {
                        self.ready(Agreement::active(&request(), &reply));
                    }
                    self.events.extend(event);
                }
            }
            return;
        }
        let Some(pair) = &mut self.pair else { return };
        if !packet.header.bth.opcode.is_response()
            && let Some(connection) = &mut self.connection
        {
            self.events.extend(connection.note_request());
        }
        self.received
            .extend(pair.receive(now, &packet, &mut self.memory, &mut self.receives));
    }

    fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let mad = self
            .strays
            .pop()
            .or_else(|| self.connection.as_mut()?.transmit());
        let length = match mad {
            Some(mad) => encode_packet(&mad.encode(), Psn::new(0), buffer),
            None => self.pair.as_mut()?.transmit(now, &mut self.memory, buffer),
        }?;
        flow().seal(0, &mut buffer[..length]).expect("long enough");
        Some(length)
    }

    /// Lets time pass; ends a queue pair that failed or whose connection is over.
    fn expire(&mut self, now: Instant) {
        let state = self.connection.as_ref().map(Connection::state);
        if let Some(connection) = &mut self.connection {
            self.events.extend(connection.expire(now));
        }
        if let Some(pair) = &mut self.pair {
            pair.expire(now);
            if pair.is_failed() || matches!(state, Some(State::TimeWait | State::Closed)) {
                self.received.extend(pair.end());
            }
            self.completed.extend(std::iter::from_fn(|| pair.poll()));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let of_pair = self.pair.as_ref().and_then(QueuePair::deadline);
        of_pair.earliest(self.connection.as_ref().and_then(Connection::deadline))
    }
}

/// A datagram under way: when it arrives, the order of sending, the receiver, and the bytes.
type UnderWay = (u64, u64, usize, Vec<u8>);

/// Two sides and the datagrams between them.
struct Session {
    sides: [Side; 2],
    now: u64,
    random: Rng,
    lost: u32,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sent: u64,
}

impl Session {
    fn new(seed: u64, lost: u32) -> Self {
        let mut sides: [Side; 2] = Default::default();
        for side in &mut sides {
            side.memory.exposed.bytes = vec![0; SIZE];
            side.memory.exposed.grants = vec![Grant {
                key: KEY,
                address: BASE,
                length: SIZE as u64,
                read: true,
                write: true,
                atomic: false,
            }];
        }
        sides[0].connection = Some(Connection::connect(TIMES, 5, request(), Instant::ZERO));
        Self {
            sides,
            now: 0,
            random: Rng::with_seed(seed),
            lost,
            under_way: BinaryHeap::new(),
            sent: 0,
        }
    }

    /// Runs until `done`; false if nothing moves any more.
    fn run(&mut self, done: impl Fn(&[Side; 2]) -> bool) -> bool {
        let mut buffer = [0; 4096 + OVERHEAD_MAX];
        for _ in 0..100_000 {
            if done(&self.sides) {
                return true;
            }
            for from in 0..2 {
                let now = Instant::from_micros(self.now);
                while let Some(length) = self.sides[from].transmit(now, &mut buffer) {
                    for _ in 0..=u32::from(self.random.u8(..10) == 0) {
                        if self.random.u32(..100) >= self.lost {
                            self.sent += 1;
                            let time = self.now + self.random.u64(20..60);
                            let datagram = buffer[..length].to_vec();
                            self.under_way
                                .push(Reverse((time, self.sent, 1 - from, datagram)));
                        }
                    }
                }
            }
            let arrival = self
                .under_way
                .peek()
                .map(|Reverse((time, ..))| Instant::from_micros(*time));
            let [one, two] = self.sides.each_ref().map(Side::deadline);
            let Some(next) = arrival.earliest(one).earliest(two) else {
                return false;
            };
            self.now = self.now.max(next.as_micros());
            let now = Instant::from_micros(self.now);
            while let Some(Reverse((time, ..))) = self.under_way.peek()
                && *time <= self.now
                && let Some(Reverse((_, _, to, datagram))) = self.under_way.pop()
            {
                self.sides[to].receive(now, &datagram);
            }
            for side in &mut self.sides {
                side.expire(now);
            }
        }
        panic!("no end");
    }
}

/// Writes, reads back and exchanges messages, `rounds` times.
fn transfer(session: &mut Session, rounds: usize) {
    let remote = RemoteAddress {
        key: KEY,
        address: BASE,
    };
    for round in 0..rounds {
        let data: Vec<u8> = (0..SIZE).map(|_| session.random.u8(..)).collect();
        for side in &mut session.sides {
            side.receives.post(round as u64, 64);
        }
        let [one, _] = &mut session.sides;
        let before = one.completed.len();
        one.post(
            Operation::Write {
                remote,
                immediate: None,
            },
            data.clone(),
        );
        let read = one.post(Operation::Read { remote }, vec![0; SIZE]);
        one.post(Operation::Send { immediate: None }, vec![1; 10]);
        assert!(session.run(|[_, two]| two.received.len() == round + 1));
        assert_eq!(session.sides[1].memory.exposed.bytes, data);
        session.sides[1].post(Operation::Send { immediate: None }, vec![2; 20]);
        assert!(session.run(|[one, two]| one.received.len() == round + 1
            && one.completed.len() == before + 3
            && two.completed.len() == round + 1));
        let [one, two] = &session.sides;
        assert!(
            one.completed
                .iter()
                .chain(&two.completed)
                .all(|done| done.status == Status::Success)
        );
        assert_eq!(one.memory.buffers.0[&read], data);
        let [received, echoed] = [one, two].map(|side| side.received[round]);
        assert_eq!(
            (received.length, received.status),
            (20, ReceiveStatus::Success)
        );
        assert_eq!((echoed.length, echoed.token), (10, round as u64));
    }
}

fn names(events: &[ConnectionEvent]) -> Vec<&'static str> {
    let name = |event: &ConnectionEvent| match event {
        ConnectionEvent::Accepted(_) => "accepted",
        ConnectionEvent::Established => "established",
        ConnectionEvent::Disconnected { .. } => "disconnected",
        ConnectionEvent::DisconnectDone => "done",
        ConnectionEvent::Released => "released",
        ConnectionEvent::Rejected(_) | ConnectionEvent::Unreachable => "failed",
    };
    events.iter().map(name).collect()
}

/// Spec: ROCE-61, ROCE-85, ROCE-100, ROCE-161, ROCE-167, ROCE-169..171
#[test]
fn sessions_run_from_the_request_to_the_release_over_a_bad_network() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut session = Session::new(seed, 10);
        assert!(session.run(|sides| sides.iter().all(|side| side.pair.is_some())));
        transfer(&mut session, 5);
        let [one, _] = &mut session.sides;
        let now = Instant::from_micros(session.now);
        assert!(
            one.connection
                .as_mut()
                .is_some_and(|connection| connection.disconnect(6, false, now))
        );
        session.run(|_| false);
        let [one, two] = &session.sides;
        assert_eq!(names(&one.events), ["accepted", "done", "released"]);
        assert_eq!(
            names(&two.events),
            ["established", "disconnected", "released"]
        );
        assert_eq!((one.received.len(), one.completed.len()), (5, 15));
    }
}

/// Spec: ROCE-80, ROCE-86, ROCE-109, ROCE-123, ROCE-131
#[test]
fn a_refused_write_ends_both_queue_pairs_and_touches_nothing() {
    let mut session = Session::new(1, 0);
    assert!(session.run(|sides| sides.iter().all(|side| side.pair.is_some())));
    transfer(&mut session, 1);
    let before = session.sides[1].memory.exposed.bytes.clone();
    let [one, two] = &mut session.sides;
    // The peer waits for a response of its own meanwhile.
    let bad = RemoteAddress {
        key: KEY + 1,
        address: BASE,
    };
    let bad = one.post(
        Operation::Write {
            remote: bad,
            immediate: None,
        },
        vec![9; 1200],
    );
    let good = RemoteAddress {
        key: KEY,
        address: BASE,
    };
    let after = one.post(
        Operation::Write {
            remote: good,
            immediate: None,
        },
        vec![9; 100],
    );
    two.receives.post(9, 64);
    let sent = two.post(Operation::Send { immediate: None }, vec![3; 20]);
    session.run(|_| false);
    let [one, two] = &session.sides;
    assert_eq!(two.memory.exposed.bytes, before);
    let status = |side: &Side, token| {
        side.completed
            .iter()
            .find(|done| done.token == token)
            .map(|done| done.status)
    };
    assert_eq!(status(one, bad), Some(Status::RemoteAccess));
    assert_eq!(status(one, after), Some(Status::Flushed));
    assert!(status(two, sent).is_some());
    for side in [one, two] {
        let pair = side.pair.as_ref().expect("a queue pair");
        assert!(pair.is_failed());
        assert_eq!(pair.deadline(), None);
    }
}

/// Spec: ROCE-82, ROCE-86, ROCE-131
#[test]
fn a_peer_that_vanished_fails_the_requests_and_stops_the_responder() {
    let mut session = Session::new(2, 0);
    assert!(session.run(|sides| sides.iter().all(|side| side.pair.is_some())));
    transfer(&mut session, 1);
    session.lost = 100;
    let [one, _] = &mut session.sides;
    let first = one.post(Operation::Send { immediate: None }, vec![1; 10]);
    let second = one.post(Operation::Send { immediate: None }, vec![1; 10]);
    session.run(|_| false);
    session.lost = 0;
    let [one, two] = &mut session.sides;
    let done = &one.completed[one.completed.len() - 2..];
    let expected = [(first, Status::RetryExceeded), (second, Status::Flushed)];
    assert_eq!(
        [0, 1].map(|index| (done[index].token, done[index].status)),
        expected
    );
    // The peer still lives: what it asks is not executed any more.
    let remote = RemoteAddress {
        key: KEY,
        address: BASE,
    };
    one.memory.exposed.bytes.fill(0);
    two.post(
        Operation::Write {
            remote,
            immediate: None,
        },
        vec![9; 10],
    );
    session.run(|_| false);
    let [one, two] = &session.sides;
    assert_eq!(one.memory.exposed.bytes, [0; SIZE]);
    assert_eq!(
        two.completed.last().map(|done| done.status),
        Some(Status::RetryExceeded)
    );
}

/// Spec: ROCE-131
#[test]
fn a_failed_requester_stops_the_responder_before_the_queue_pair_is_ended() {
    let mut side = Side::default();
    side.memory.exposed.bytes = vec![0; SIZE];
    side.memory.exposed.grants = vec![Grant {
        key: KEY,
        address: BASE,
        length: SIZE as u64,
        read: true,
        write: true,
        atomic: false,
    }];
    side.ready(Agreement::active(&request(), &reply()));
    side.post(Operation::Send { immediate: None }, vec![]);
    side.memory.buffers.0.clear();
    side.post(Operation::Send { immediate: None }, vec![1]);
    side.memory.buffers.0.clear();
    let pair = side.pair.as_mut().expect("a queue pair");
    let mut buffer = [0; 600];
    let (now, memory, receives) = (Instant::ZERO, &mut side.memory, &mut side.receives);
    assert!(pair.transmit(now, memory, &mut buffer).is_some());
    assert!(!pair.is_failed());
    // The memory of the second request is not there.
    assert_eq!(pair.transmit(now, memory, &mut buffer), None);
    assert!(pair.is_failed());
    let write = Made::new(Opcode::WriteOnly, request().starting_psn.value(), &[9; 8]);
    let write = write.reth(KEY, BASE, 8).asking();
    assert_eq!(pair.receive(now, &write.packet(), memory, receives), None);
    assert_eq!(pair.transmit(now, memory, &mut buffer), None);
    assert_eq!(memory.exposed.bytes[..8], [0; 8]);
    assert_eq!(pair.next_local(), None);
}
