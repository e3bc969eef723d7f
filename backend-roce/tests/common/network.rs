//! A network between two queue pairs: seeded, with virtual time and faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use backend_roce::proto::icrc::Verdict;
use backend_roce::proto::packet::{OVERHEAD_MAX, Packet, RnrTimer};
use backend_roce::proto::requester::{RequestSlot, Requester, RequesterOptions};
use backend_roce::proto::responder::{
    ReceiveCompletion, ResourceSlot, Responder, ResponderOptions,
};
use backend_roce::proto::{Earliest, PathMtu, Psn};
use dat_core::time::Instant;
use fastrand::Rng;

use super::flow;
use super::memory::{Buffers, Exposed, Receives};

/// Faults of the network, each in packets of a thousand.
#[derive(Clone, Copy)]
pub struct Faults {
    pub lost: u32,
    pub repeated: u32,
    pub late: u32,
    pub damaged: u32,
}

impl Faults {
    pub const NONE: Self = Self {
        lost: 0,
        repeated: 0,
        late: 0,
        damaged: 0,
    };
}

/// Options of both ends.
#[derive(Clone, Copy)]
pub struct Options {
    pub mtu: PathMtu,
    pub window: u32,
    pub depth: u8,
    pub resources: usize,
    pub slots: usize,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
}

impl Options {
    pub const USUAL: Self = Self {
        mtu: PathMtu::Bytes256,
        window: 32,
        depth: 4,
        resources: 4,
        slots: 16,
        timeout: 8,
        retry_count: 7,
        rnr_retry_count: 7,
    };
}

/// A queue pair with its memory.
pub struct End {
    pub requester: Requester<'static>,
    pub responder: Responder<'static>,
    pub buffers: Buffers,
    pub exposed: Exposed,
    pub receives: Receives,
    /// Receives that completed, with their buffers and what was at their probe then.
    pub received: Vec<(ReceiveCompletion, Vec<u8>, Vec<u8>)>,
    /// The place in the exposed memory to look at when the receive of a token completes.
    pub probe: fn(u64) -> std::ops::Range<usize>,
}

impl End {
    pub fn new(options: Options, number: u32, sends: Psn, expects: Psn) -> Self {
        let slots = Box::leak(vec![RequestSlot::EMPTY; options.slots].into_boxed_slice());
        let resources = Box::leak(vec![ResourceSlot::EMPTY; options.resources].into_boxed_slice());
        let requester = RequesterOptions {
            destination: number,
            first: sends,
            mtu: options.mtu,
            initiator_depth: options.depth,
            run: 1,
            window: options.window,
            timeout: options.timeout,
            is_lossless: false,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
        };
        let responder = ResponderOptions {
            destination: number,
            first: expects,
            mtu: options.mtu,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
            rnr_timer: RnrTimer::from_code(8),
        };
        Self {
            requester: Requester::new(requester, slots),
            responder: Responder::new(responder, resources),
            buffers: Buffers::default(),
            exposed: Exposed::default(),
            receives: Receives::default(),
            received: Vec::new(),
            probe: |_| 0..0,
        }
    }

    /// Takes a datagram; a damaged one is dropped.
    pub fn receive(&mut self, now: Instant, datagram: &[u8]) {
        match flow().verify(datagram) {
            Verdict::Right => {}
            Verdict::Recovered(identification) if identification < 128 => {}
            _ => return,
        }
        let Ok(packet) = Packet::decode(datagram) else {
            return;
        };
        if packet.header.bth.opcode.is_response() {
            self.requester.receive(now, &packet, &mut self.buffers);
            return;
        }
        let done = self
            .responder
            .receive(&packet, &mut self.exposed, &mut self.receives);
        if let Some(done) = done {
            let buffer = self.receives.buffers.remove(&done.token);
            let probe = self.exposed.bytes[(self.probe)(done.token)].to_vec();
            self.received
                .push((done, buffer.expect("a receive"), probe));
        }
    }

    /// Returns the next datagram.
    pub fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let length = match self.responder.transmit(&mut self.exposed, buffer) {
            Some(length) => length,
            None => self.requester.transmit(now, &mut self.buffers, buffer)?,
        };
        flow().seal(0, &mut buffer[..length]).expect("long enough");
        Some(length)
    }

    pub fn post_receive(&mut self, token: u64, length: u32) {
        self.receives.post(token, length);
    }
}

/// A datagram under way: when it arrives, the order of sending, the receiver, and the bytes.
type UnderWay = (u64, u64, usize, Vec<u8>);

/// Two ends and the datagrams between them.
pub struct Network {
    pub ends: [End; 2],
    pub now: Instant,
    pub faults: Faults,
    pub random: Rng,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sent: u64,
    /// Datagrams sent.
    pub datagrams: u64,
}

impl Network {
    pub fn new(options: Options, faults: Faults, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        // PSNs wrap early in some runs.
        let mut psn = || Psn::new(0xFF_FFF0_u32.wrapping_add(random.u32(..0x20)));
        let (one, two) = (psn(), psn());
        Self {
            ends: [
                End::new(options, 0x11, one, two),
                End::new(options, 0x12, two, one),
            ],
            now: Instant::ZERO,
            faults,
            random,
            under_way: BinaryHeap::new(),
            sent: 0,
            datagrams: 0,
        }
    }

    /// Puts a datagram on the way to `to`.
    pub fn send(&mut self, to: usize, datagram: &[u8]) {
        self.datagrams += 1;
        let mut hits = |per_mille: u32| self.random.u32(..1000) < per_mille;
        if hits(self.faults.lost) {
            return;
        }
        let copies = if hits(self.faults.repeated) { 2 } else { 1 };
        for _ in 0..copies {
            let mut datagram = datagram.to_vec();
            if self.random.u32(..1000) < self.faults.damaged {
                let bit = self.random.usize(..datagram.len() * 8);
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            let late = self.random.u32(..1000) < self.faults.late;
            let delay = 20 + if late { self.random.u64(..200) } else { 0 };
            self.sent += 1;
            let time = self.now.as_micros() + delay;
            let entry = (time, self.sent, to, datagram);
            self.under_way.push(Reverse(entry));
        }
    }

    /// Sends what both ends have to send.
    pub fn flush(&mut self) {
        let mut buffer = [0; 4096 + OVERHEAD_MAX];
        for end in 0..2 {
            while let Some(length) = self.ends[end].transmit(self.now, &mut buffer) {
                self.send(1 - end, &buffer[..length]);
            }
        }
    }

    /// Moves time to the next datagram, time-out or `until`; false if there is nothing to wait for.
    pub fn step(&mut self, until: Option<Instant>) -> bool {
        self.flush();
        let arrival = self
            .under_way
            .peek()
            .map(|Reverse((time, ..))| Instant::from_micros(*time));
        let deadlines = self.ends.each_ref().map(|end| end.requester.deadline());
        let next = arrival
            .earliest(deadlines[0])
            .earliest(deadlines[1])
            .earliest(until);
        let Some(next) = next else {
            return false;
        };
        self.now = self.now.max(next);
        for end in &mut self.ends {
            end.requester.expire(self.now);
        }
        while let Some(Reverse((time, ..))) = self.under_way.peek()
            && *time <= self.now.as_micros()
            && let Some(Reverse((_, _, to, datagram))) = self.under_way.pop()
        {
            self.ends[to].receive(self.now, &datagram);
        }
        true
    }

    /// Steps until nothing moves any more.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step(None) {
                return;
            }
        }
        panic!("the network does not come to rest");
    }
}
