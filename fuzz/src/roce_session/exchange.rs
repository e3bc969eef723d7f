//! A requester and a responder.

use std::collections::VecDeque;

use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{
    Aeth, AtomicEth, Bth, Extensions, Header, NakCode, OVERHEAD_MAX, Opcode, Packet, Reth,
    RnrTimer, Syndrome,
};
use backend_roce::proto::requester::{
    Completion, Operation, PostError, Request, RequestSlot, Requester, RequesterOptions, Status,
};
use backend_roce::proto::responder::{
    self, ReceiveCompletion, ReceiveStatus, ResourceSlot, Responder, ResponderOptions,
};
use backend_roce::proto::{PathMtu, Psn};
use dat_core::time::Instant;

use super::OPERATION;
use super::memory::{BASE, Buffers, ENDS, Exposed, HALF, KEY, Receives, readable};

/// Requests that the requester has room for.
const REQUESTS: usize = 8;
/// Reads and Atomics that the responder remembers, and that may be under way.
const DEPTH: u8 = 4;
/// Packets that may be under way.
const WINDOW: u32 = 16;
/// Packets of one send, where short requests gather (ROCE-184).
const RUN: u16 = 6;
const MTU: PathMtu = PathMtu::Bytes256;
/// Most bytes of a message.
const LONGEST: u32 = 1024;
/// Most packets that the network holds in a direction; it loses what comes beyond.
const HELD: usize = 64;
/// Most packets that an end sends before it waits for something.
const BURST: usize = 256;
/// Turns after which an honest network must have let everything end.
const PATIENCE: usize = 10_000;

/// Part of a message beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Immediate,
    Invalidation,
}

/// A posted request, as the model has it.
#[derive(Clone, Debug)]
enum Posted {
    Send(Vec<u8>, Beside),
    Write(usize, Vec<u8>),
    Read(usize, usize),
    Add(u64),
    Local,
}

/// Both ends, the network between them, and the model.
struct Exchange {
    requester: Requester<'static>,
    responder: Responder<'static>,
    buffers: Buffers,
    exposed: Exposed,
    receives: Receives,
    now: u64,
    /// Packets to the responder, and to the requester.
    under_way: [VecDeque<Vec<u8>>; 2],
    posted: Vec<Posted>,
    completed: Vec<Completion>,
    /// The request that failed.
    failure: Option<Completion>,
    received: Vec<ReceiveCompletion>,
    /// Set once the network made a packet of its own, or an end was ended from outside.
    is_tainted: bool,
}

pub(super) fn run(setup: u8, operations: &[[u8; OPERATION]]) {
    let mut exchange = Exchange::new(setup);
    for operation in operations {
        exchange.operate(operation);
        exchange.collect();
    }
    exchange.finish();
    exchange.check();
}

impl Exchange {
    fn new(setup: u8) -> Self {
        // Near the end of all PSNs, so that they wrap.
        let first = Psn::new(0xFF_FFF8 + u32::from(setup & 7));
        let requester = RequesterOptions {
            destination: 0x22,
            first,
            mtu: MTU,
            initiator_depth: 1 + (setup >> 3 & 1) * (DEPTH - 1),
            window: if setup & 0x10 == 0 { WINDOW } else { 2 },
            run: if setup & 0x20 == 0 { 1 } else { RUN },
            timeout: 8,
            is_lossless: false,
            retry_count: 3,
            rnr_retry_count: 3,
        };
        let responder = ResponderOptions {
            destination: 0x11,
            first,
            mtu: MTU,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
            rnr_timer: RnrTimer::from_code(8),
        };
        let slots: Vec<_> = (0..REQUESTS).map(|_| RequestSlot::EMPTY).collect();
        let resources: Vec<_> = (0..DEPTH).map(|_| ResourceSlot::EMPTY).collect();
        Self {
            requester: Requester::new(requester, slots),
            responder: Responder::new(responder, resources),
            buffers: Buffers::default(),
            exposed: Exposed::new(),
            receives: Receives::default(),
            now: 0,
            under_way: Default::default(),
            posted: Vec::new(),
            completed: Vec::new(),
            failure: None,
            received: Vec::new(),
            is_tainted: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.now)
    }

    fn operate(&mut self, operation: &[u8; OPERATION]) {
        let [kind, a, b, high, low, c, d, e] = *operation;
        let wide = u16::from_be_bytes([high, low]);
        let direction = usize::from(a & 1);
        match kind % 16 {
            0 | 1 => self.post(a, wide, c, b),
            2 => self.receives.post(u32::from(wide) % (LONGEST + 1)),
            3 => self.transmit(0),
            4 => self.transmit(1),
            5 | 6 => {
                self.deliver(direction, b);
            }
            7 => {
                let index = self.index(direction, b);
                self.under_way[direction].remove(index);
            }
            8 => {
                let index = self.index(direction, b);
                let copy = self.under_way[direction].get(index).cloned();
                self.under_way[direction].extend(copy);
            }
            9 => self.now += u64::from(wide),
            10 => self.expire(),
            11 => self.inject(direction, b, wide, [c, d, e]),
            12 => self.requester.finish_local(Ok(())),
            14 => self.requester.drain(),
            15 => self.requester.resume(),
            _ => {
                self.is_tainted = true;
                match direction {
                    0 => self.requester.end(),
                    _ => self.received.extend(self.responder.end()),
                }
            }
        }
    }

    fn index(&self, direction: usize, choice: u8) -> usize {
        let length = self.under_way[direction].len().max(1);
        usize::from(choice) % length
    }

    fn post(&mut self, kind: u8, wide: u16, at: u8, flags: u8) {
        let length = u32::from(wide) % (LONGEST + 1);
        let offset = usize::from(at) * 4;
        let token = self.posted.len() as u64;
        let bytes: Vec<u8> = (0..length)
            .map(|at| (at as u8).wrapping_mul(3) ^ token as u8)
            .collect();
        let at = |offset: usize| RemoteAddress {
            key: KEY,
            address: BASE + offset as u64,
        };
        let immediate = (flags & 4 != 0).then_some([1, 2, 3, flags]);
        let (operation, buffer, posted) = match kind % 5 {
            0 if flags & 8 != 0 => (
                Operation::SendInvalidate { key: ENDS },
                bytes.clone(),
                Posted::Send(bytes, Beside::Invalidation),
            ),
            0 => (
                Operation::Send { immediate },
                bytes.clone(),
                Posted::Send(
                    bytes,
                    immediate.map_or(Beside::Nothing, |_| Beside::Immediate),
                ),
            ),
            1 => (
                Operation::Write {
                    remote: at(offset),
                    immediate: None,
                },
                bytes.clone(),
                Posted::Write(offset, bytes),
            ),
            2 => (
                Operation::Read {
                    remote: at(HALF + offset),
                },
                vec![0xEE; bytes.len()],
                Posted::Read(offset, bytes.len()),
            ),
            3 => (
                Operation::Atomic {
                    remote: at(2 * HALF),
                    operation: AtomicOperation::FetchAdd(length.into()),
                },
                vec![0xEE; 8],
                Posted::Add(length.into()),
            ),
            _ => (Operation::Local, Vec::new(), Posted::Local),
        };
        let request = Request {
            token,
            operation,
            length: buffer.len() as u32,
            fence: flags & 1 != 0,
            solicited: flags & 2 != 0,
        };
        match self.requester.post(request) {
            Ok(()) => {
                self.buffers.0.insert(token, buffer);
                self.posted.push(posted);
            }
            Err(error) => {
                let used = self.posted.len() - self.completed.len();
                assert_eq!((error, used), (PostError::Full, REQUESTS));
            }
        }
    }

    /// Lets an end send all that it has.
    fn transmit(&mut self, direction: usize) {
        let mut buffer = [0; 256 + OVERHEAD_MAX];
        for _ in 0..BURST {
            let now = self.now();
            let sent = match direction {
                0 => self.requester.transmit(now, &mut self.buffers, &mut buffer),
                _ => self.responder.transmit(&mut self.exposed, &mut buffer),
            };
            let Some(length) = sent else { return };
            let packet = Packet::decode(&buffer[..length]).expect("a packet");
            assert_eq!(packet.header.bth.opcode.is_response(), direction == 1);
            if self.under_way[direction].len() < HELD {
                self.under_way[direction].push_back(buffer[..length].to_vec());
            }
        }
        panic!("an end sends for ever");
    }

    /// Delivers a packet; returns false if there is none.
    fn deliver(&mut self, direction: usize, choice: u8) -> bool {
        let index = self.index(direction, choice);
        let Some(datagram) = self.under_way[direction].remove(index) else {
            return false;
        };
        let packet = Packet::decode(&datagram).expect("a packet");
        let now = self.now();
        if direction == 0 {
            let done = self
                .responder
                .receive(&packet, &mut self.exposed, &mut self.receives);
            self.received.extend(done);
        } else {
            self.requester.receive(now, &packet, &mut self.buffers);
        }
        true
    }

    /// Advances the time to the deadline of the requester, which has then work to do.
    fn expire(&mut self) {
        let Some(deadline) = self.requester.deadline() else {
            return;
        };
        self.now = self.now.max(deadline.as_micros());
        let now = self.now();
        self.requester.expire(now);
        let next = self.requester.deadline();
        assert!(next.is_none_or(|next| next > now), "{next:?} at {now:?}");
    }

    /// Sends a packet that no end made.
    fn inject(&mut self, direction: usize, code: u8, wide: u16, more: [u8; 3]) {
        let Some(opcode) = Opcode::from_code(code) else {
            return;
        };
        self.is_tainted = true;
        let [near, value, flags] = more;
        let base = match (direction, flags & 1) {
            (0, 0) => self.responder.expected(),
            _ => self.requester.unacknowledged(),
        };
        let remote = RemoteAddress {
            key: KEY ^ u32::from(flags >> 7),
            address: BASE + u64::from(wide),
        };
        let syndrome = match value % 4 {
            0 => Syndrome::Acknowledgement,
            1 => Syndrome::ReceiverNotReady(RnrTimer::from_code(value)),
            2 => Syndrome::Negative(NakCode::SequenceError),
            _ => Syndrome::Negative(NakCode::RemoteAccess),
        };
        let operation = match opcode {
            Opcode::FetchAdd => AtomicOperation::FetchAdd(value.into()),
            _ => AtomicOperation::CompareSwap {
                compare: 0,
                swap: value.into(),
            },
        };
        let extensions = Extensions {
            reth: Some(Reth {
                remote,
                length: u32::from(wide) >> 3,
            }),
            atomic: Some(AtomicEth { remote, operation }),
            aeth: Some(Aeth {
                syndrome,
                msn: value.into(),
            }),
            original: Some(wide.into()),
            immediate: Some([value; 4]),
            invalidate: Some(ENDS ^ u32::from(flags >> 7)),
            ..Extensions::default()
        };
        let bth = Bth {
            opcode,
            solicited: flags & 2 != 0,
            destination: 0x33,
            acknowledge: flags & 4 != 0,
            psn: base.plus(u32::from(near)),
        };
        let payload = vec![value; usize::from(wide) % 300];
        let payload = if opcode.has_payload() { &*payload } else { &[] };
        let mut buffer = vec![0; payload.len() + 3 + OVERHEAD_MAX];
        let sent = Header { bth, extensions }.encode_with(payload, &mut buffer);
        if let Some(length) = sent
            && self.under_way[direction].len() < HELD
        {
            self.under_way[direction].push_back(buffer[..length].to_vec());
        }
    }

    /// Takes completions: each request completes once and in order.
    ///
    /// After the first one without success none succeeds, and only one fails. Those before the
    /// failed one had no outcome, and are flushed like those after it (ROCE-86, ROCE-89).
    fn collect(&mut self) {
        while let Some(done) = self.requester.poll() {
            assert_eq!(done.token, self.completed.len() as u64, "{done:?}");
            assert!(self.completed.len() < self.posted.len(), "{done:?}");
            let last = self.completed.last().map(|last| last.status);
            if last.is_some_and(|last| last != Status::Success) {
                assert_ne!(done.status, Status::Success, "{done:?}");
            }
            if ![Status::Success, Status::Flushed].contains(&done.status) {
                let failure = self.failure.replace(done);
                assert_eq!(failure, None, "and {done:?}");
            }
            self.completed.push(done);
        }
        for (index, done) in self.received.iter().enumerate() {
            assert_eq!(done.token, index as u64, "{done:?}");
            assert!(index < self.receives.buffers.len());
        }
        let units = self.requester.under_way();
        if self.requester.is_idle() {
            assert_eq!(units, Default::default());
        }
    }

    /// Lets an honest network deliver everything, until nothing is left to do.
    fn finish(&mut self) {
        self.requester.resume();
        for _ in 0..PATIENCE {
            self.collect();
            if self.completed.len() == self.posted.len() {
                return;
            }
            while self.requester.next_local().is_some() {
                self.requester.finish_local(Ok(()));
            }
            self.transmit(0);
            let mut moved = self.deliver(0, 0);
            self.transmit(1);
            moved |= self.deliver(1, 0);
            if moved {
                continue;
            }
            let before = self.requester.deadline();
            self.expire();
            if before.is_none() {
                self.collect();
                // The responder ended, or a peer that lies left nothing to wait for.
                let left = self.posted.len() - self.completed.len();
                assert!(left == 0 || self.is_tainted, "{left} requests hang");
                return;
            }
        }
        assert!(self.is_tainted, "requests without an end");
    }

    /// Compares the memory with the model, if nobody lied.
    fn check(&self) {
        if self.is_tainted {
            return;
        }
        let is_success = |done: &&Completion| done.status == Status::Success;
        let succeeded = self.completed.iter().take_while(is_success).count();
        let (mut written, mut number, mut messages) = (vec![0; HALF], 0_u64, Vec::new());
        for (token, posted) in self.posted[..succeeded].iter().enumerate() {
            let buffer = &self.buffers.0[&(token as u64)];
            match posted {
                Posted::Send(bytes, beside) => messages.push((bytes, *beside)),
                Posted::Write(offset, bytes) => {
                    written[*offset..][..bytes.len()].copy_from_slice(bytes);
                }
                Posted::Read(offset, length) => {
                    let source = (*offset..offset + length).map(readable);
                    assert!(buffer.iter().copied().eq(source), "request {token}");
                }
                Posted::Add(value) => {
                    assert_eq!(buffer[..], number.to_ne_bytes(), "request {token}");
                    number = number.wrapping_add(*value);
                }
                Posted::Local => {}
            }
        }
        // A request that failed may have been executed, so only the others are told apart.
        if succeeded == self.posted.len() {
            assert!(self.exposed.0[..HALF] == written);
            assert_eq!(self.exposed.number(), number);
            assert_eq!(self.received.len(), messages.len());
        }
        assert!(self.received.len() >= messages.len());
        for (done, (bytes, beside)) in self.received.iter().zip(messages) {
            assert_eq!(done.status, ReceiveStatus::Success);
            assert_eq!(done.length as usize, bytes.len());
            let came = match done.beside {
                responder::Beside::Nothing => Beside::Nothing,
                responder::Beside::Immediate(_) => Beside::Immediate,
                responder::Beside::Invalidation(key) => {
                    assert_eq!(key, ENDS);
                    Beside::Invalidation
                }
            };
            assert_eq!(came, beside);
            assert!(!done.is_write);
            let buffer = &self.receives.buffers[done.token as usize];
            assert!(buffer[..bytes.len()] == *bytes);
        }
    }
}
