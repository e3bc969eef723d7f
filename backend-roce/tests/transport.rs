//! Two queue pairs over a network with faults: every operation completes once, in order, with the
//! right bytes.

mod common;

use std::collections::VecDeque;

use backend_roce::proto::PathMtu;
use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::requester::{Operation, PostError, Request, Status};
use backend_roce::proto::responder::{Beside, ReceiveStatus};
use common::memory::{BASE, Grant};
use common::million::{Recovery, carry_a_million};
use common::network::{Faults, Network, Options};
use dat_core::time::Instant;
use fastrand::Rng;

/// Length of the areas that are only read, and only written.
const AREA: usize = 32 * 1024;
const READ_KEY: u32 = 0x1111;
const WRITE_KEY: u32 = 0x2222;
const COUNTER_KEY: u32 = 0x3333;
const COUNTERS: usize = 8;
const RECEIVE: u32 = 12_000;

/// Expected effect of an operation.
enum Expected {
    Send {
        data: Vec<u8>,
        immediate: Option<[u8; 4]>,
        solicited: bool,
    },
    Write {
        at: usize,
        data: Vec<u8>,
        immediate: Option<[u8; 4]>,
    },
    Read {
        data: Option<Vec<u8>>,
        at: usize,
        length: usize,
    },
    Atomic {
        at: usize,
        operation: AtomicOperation,
    },
}

/// The reference: what one end asked of the other, in order.
struct Reference {
    /// The memory of the other end after all operations that completed.
    memory: Vec<u8>,
    /// Operations that did not complete at the initiator.
    open: VecDeque<(u64, Expected)>,
    /// The memory of the other end at each operation that takes a receive there, in order.
    arrivals: VecDeque<Arrival>,
    /// The memory after all operations that were posted.
    future: Vec<u8>,
    posted: u64,
    /// Operations that take a receive, among those posted.
    arrived: u64,
    fence_next: bool,
}

/// A part of the written area: the receive with this token completes when it is as it must be.
fn probe(token: u64) -> std::ops::Range<usize> {
    let at = AREA + (token as usize * 997) % (AREA - 64);
    at..at + 64
}

struct Arrival {
    data: Option<Vec<u8>>,
    length: usize,
    immediate: Option<[u8; 4]>,
    solicited: bool,
    /// The probe as it must be when the receive completes.
    probe: Vec<u8>,
}

fn memory(random: &mut Rng) -> Vec<u8> {
    (0..2 * AREA + 8 * COUNTERS)
        .map(|_| random.u8(..))
        .collect()
}

fn grants() -> Vec<Grant> {
    let grant = |key, at: usize, length: usize| Grant {
        key,
        address: BASE + at as u64,
        length: length as u64,
        read: true,
        write: key == WRITE_KEY,
        atomic: key == COUNTER_KEY,
    };
    vec![
        grant(READ_KEY, 0, AREA),
        grant(WRITE_KEY, AREA, AREA),
        grant(COUNTER_KEY, 2 * AREA, 8 * COUNTERS),
    ]
}

fn apply(memory: &mut [u8], at: usize, operation: AtomicOperation) -> u64 {
    let place = &mut memory[at..at + 8];
    let value = u64::from_ne_bytes(place.try_into().unwrap());
    place.copy_from_slice(&operation.apply(value).to_ne_bytes());
    value
}

impl Reference {
    fn new(memory: Vec<u8>) -> Self {
        Self {
            future: memory.clone(),
            memory,
            open: VecDeque::new(),
            arrivals: VecDeque::new(),
            posted: 0,
            arrived: 0,
            fence_next: false,
        }
    }

    /// Draws an operation: the request, its local buffer, and what must become of it.
    fn draw(&mut self, random: &mut Rng) -> (Request, Vec<u8>, Expected) {
        let length = match random.u8(..10) {
            0 => 0,
            1..7 => random.usize(1..100),
            7..9 => random.usize(100..1500),
            _ => random.usize(1500..RECEIVE as usize),
        };
        let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let immediate = random.bool().then(|| random.u32(..).to_be_bytes());
        let fence = std::mem::take(&mut self.fence_next);
        let remote = |key, at: usize| RemoteAddress {
            key,
            address: BASE + at as u64,
        };
        let (operation, buffer, expected) = match random.u8(..8) {
            0..2 => {
                let expected = Expected::Send {
                    data: data.clone(),
                    immediate,
                    solicited: length % 2 == 0,
                };
                (Operation::Send { immediate }, data, expected)
            }
            2..5 => {
                let at = AREA + random.usize(..=AREA - length);
                let immediate = immediate.filter(|_| length % 3 == 0);
                let remote = remote(WRITE_KEY, at);
                let expected = Expected::Write {
                    at,
                    data: data.clone(),
                    immediate,
                };
                (Operation::Write { remote, immediate }, data, expected)
            }
            5 | 6 => {
                // What is written meanwhile may be read when a response is lost: such a Read is
                // followed by a fence, or reads what nobody writes.
                let written = length % 2 == 0;
                let at = random.usize(..=AREA - length) + if written { AREA } else { 0 };
                self.fence_next = written;
                let remote = remote(if written { WRITE_KEY } else { READ_KEY }, at);
                let expected = Expected::Read {
                    data: None,
                    at,
                    length,
                };
                (Operation::Read { remote }, vec![0xAA; length], expected)
            }
            _ => {
                let at = 2 * AREA + 8 * random.usize(..COUNTERS);
                let value = u64::from_ne_bytes(self.future[at..at + 8].try_into().unwrap());
                let operation = match random.u8(..3) {
                    0 => AtomicOperation::FetchAdd(random.u64(..)),
                    1 => AtomicOperation::CompareSwap {
                        compare: value,
                        swap: random.u64(..),
                    },
                    _ => AtomicOperation::CompareSwap {
                        compare: !value,
                        swap: 1,
                    },
                };
                let remote = remote(COUNTER_KEY, at);
                (
                    Operation::Atomic { remote, operation },
                    vec![0; 8],
                    Expected::Atomic { at, operation },
                )
            }
        };
        let request = Request {
            token: self.posted,
            operation,
            length: buffer.len() as u32,
            fence,
            solicited: length % 2 == 0,
        };
        (request, buffer, expected)
    }

    /// Notes that the operation was posted.
    fn post(&mut self, mut expected: Expected) {
        let (data, length, immediate, solicited) = match &mut expected {
            Expected::Send {
                data,
                immediate,
                solicited,
            } => (Some(data.clone()), data.len(), *immediate, *solicited),
            Expected::Write {
                at,
                data,
                immediate,
            } => {
                self.future[*at..*at + data.len()].copy_from_slice(data);
                (None, data.len(), *immediate, data.len() % 2 == 0)
            }
            Expected::Read { data, at, length } => {
                *data = Some(self.future[*at..*at + *length].to_vec());
                (None, 0, None, false)
            }
            Expected::Atomic { at, operation } => {
                apply(&mut self.future, *at, *operation);
                (None, 0, None, false)
            }
        };
        if data.is_some() || immediate.is_some() {
            let probe = self.future[probe(self.arrived)].to_vec();
            self.arrived += 1;
            self.arrivals.push_back(Arrival {
                data,
                length,
                immediate,
                solicited,
                probe,
            });
        }
        self.open.push_back((self.posted, expected));
        self.posted += 1;
    }

    /// Compares a completed operation.
    fn complete(&mut self, token: u64, buffer: &[u8]) {
        let (expected_token, expected) = self.open.pop_front().expect("one that was posted");
        assert_eq!(token, expected_token, "in order, and once");
        match expected {
            Expected::Send { .. } => {}
            Expected::Write { at, data, .. } => {
                self.memory[at..at + data.len()].copy_from_slice(&data)
            }
            Expected::Read { data, .. } => assert_eq!(Some(buffer), data.as_deref(), "bytes read"),
            Expected::Atomic { at, operation } => {
                let original = apply(&mut self.memory, at, operation);
                assert_eq!(buffer, original.to_ne_bytes(), "the value before");
            }
        }
    }
}

/// Counts of a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    datagrams: u64,
    recovery: Recovery,
    micros: u64,
}

/// Runs `operations` operations, half of them from each end.
fn run(options: Options, faults: Faults, seed: u64, operations: u64) -> Outcome {
    println!("seed {seed}");
    let mut network = Network::new(options, faults, seed);
    let mut random = Rng::with_seed(seed ^ 0x5EED);
    let mut references = [0, 1].map(|from: usize| {
        network.ends[1 - from].probe = probe;
        let exposed = &mut network.ends[1 - from].exposed;
        exposed.bytes = memory(&mut random);
        exposed.grants = grants();
        Reference::new(exposed.bytes.clone())
    });
    let mut receive_tokens = [0; 2];
    let mut next_receives = Instant::ZERO;
    loop {
        for (here, reference) in network.ends.iter_mut().zip(&mut references) {
            while let Some(done) = here.requester.poll() {
                assert_eq!(done.status, Status::Success, "operation {}", done.token);
                let buffer = here.buffers.0.remove(&done.token).expect("a buffer");
                reference.complete(done.token, &buffer);
            }
            while reference.posted < operations / 2 && random.u8(..4) != 0 {
                let before = reference.fence_next;
                let (request, buffer, expected) = reference.draw(&mut random);
                match here.requester.post(request) {
                    Ok(()) => {
                        here.buffers.0.insert(request.token, buffer);
                        reference.post(expected);
                    }
                    Err(error) => {
                        assert_eq!(error, PostError::Full);
                        reference.fence_next = before;
                        break;
                    }
                }
            }
        }
        if network.now >= next_receives {
            // Now and then there is no receive.
            for (end, token) in network.ends.iter_mut().zip(&mut receive_tokens) {
                for _ in end.receives.posted.len()..random.usize(..6) {
                    end.post_receive(*token, RECEIVE);
                    *token += 1;
                }
            }
            next_receives = Instant::from_micros(network.now.as_micros() + 300);
        }
        let done = references
            .iter()
            .all(|reference| reference.posted == operations / 2 && reference.open.is_empty());
        if done {
            break;
        }
        assert!(network.step(Some(next_receives)));
        for (from, reference) in references.iter_mut().enumerate() {
            let there = &mut network.ends[1 - from];
            for (done, buffer, probe) in there.received.drain(..) {
                let arrival = reference.arrivals.pop_front().expect("one that was posted");
                assert_eq!(
                    (done.status, done.length as usize),
                    (ReceiveStatus::Success, arrival.length)
                );
                assert_eq!(
                    (done.beside, done.solicited),
                    (Beside::from(arrival.immediate), arrival.solicited)
                );
                assert_eq!(done.is_write, arrival.data.is_none());
                if let Some(data) = arrival.data {
                    assert_eq!(buffer[..data.len()], data, "bytes sent");
                    assert!(buffer[data.len()..].iter().all(|byte| *byte == 0));
                }
                assert_eq!(probe, arrival.probe, "earlier Writes, and no later one");
            }
        }
    }
    network.faults = Faults::NONE;
    network.run();
    for (from, reference) in references.iter().enumerate() {
        assert!(reference.arrivals.is_empty());
        assert!(network.ends[from].requester.poll().is_none());
        assert_eq!(network.ends[1 - from].exposed.bytes, reference.memory);
        assert_eq!(network.ends[1 - from].exposed.refused, 0);
    }
    let sum = |count: fn(&common::network::End) -> u64| network.ends.iter().map(count).sum();
    Outcome {
        datagrams: network.datagrams,
        recovery: Recovery {
            retransmits: sum(|end| end.requester.counts().retransmits),
            timeouts: sum(|end| end.requester.counts().timeouts),
            duplicates: sum(|end| end.responder.counts().duplicates),
            not_ready: sum(|end| end.requester.counts().not_ready),
        },
        micros: network.now.as_micros(),
    }
}

const FAULTS: Faults = Faults {
    lost: 100,
    repeated: 100,
    late: 200,
    damaged: 20,
};

/// Retries that outlast the faults.
const STUBBORN: Options = Options {
    retry_count: 200,
    ..Options::USUAL
};

/// Spec: ROCE-62..63, ROCE-65, ROCE-68, ROCE-71..74, ROCE-85, ROCE-87, ROCE-100, ROCE-113,
/// ROCE-116, ROCE-118, ROCE-124
#[test]
fn operations_complete_in_order_on_a_good_network() {
    for mtu in PathMtu::ALL {
        let outcome = run(
            Options {
                mtu,
                ..Options::USUAL
            },
            Faults::NONE,
            1,
            4_000,
        );
        println!("{outcome:?}");
        let recovery = outcome.recovery;
        assert_eq!((recovery.timeouts, recovery.duplicates), (0, 0));
    }
}

/// Spec: ROCE-34, ROCE-72..75, ROCE-77..78, ROCE-81, ROCE-85, ROCE-88, ROCE-90, ROCE-100..101,
/// ROCE-106..107, ROCE-120..122
#[test]
fn operations_complete_once_and_in_order_on_a_bad_network() {
    for (seed, mtu) in [
        (11, PathMtu::Bytes256),
        (12, PathMtu::Bytes1024),
        (13, PathMtu::Bytes4096),
    ] {
        let outcome = run(Options { mtu, ..STUBBORN }, FAULTS, seed, 3_000);
        println!("{outcome:?}");
        let recovery = outcome.recovery;
        assert!(recovery.retransmits > 500 && recovery.timeouts > 50);
        assert!(recovery.duplicates > 500 && recovery.not_ready > 0);
    }
}

/// Spec: ROCE-66, ROCE-69..70
#[test]
fn small_windows_and_depths_complete_too() {
    for (seed, window, depth) in [(21, 1, 1), (22, 2, 1), (23, 5, 2), (24, 200, 16)] {
        let options = Options {
            window,
            depth,
            resources: usize::from(depth),
            ..STUBBORN
        };
        println!("{:?}", run(options, FAULTS, seed, 800));
        println!("{:?}", run(options, Faults::NONE, seed, 800));
    }
}

/// Spec: ROCE-85
#[test]
fn a_run_is_reproducible_from_its_seed() {
    assert_eq!(
        run(STUBBORN, FAULTS, 31, 500),
        run(STUBBORN, FAULTS, 31, 500)
    );
}

/// Spec: ROCE-85, ROCE-100
#[test]
#[ignore = "the long form: a million operations"]
fn a_million_operations_complete_once_and_in_order_on_a_bad_network() {
    let mtus = PathMtu::ALL.repeat(2);
    let runs = mtus.len() as u64;
    carry_a_million("two queue pairs", 1000, runs, |index, seed, operations| {
        let mtu = mtus[index];
        run(Options { mtu, ..STUBBORN }, FAULTS, seed, operations).recovery
    });
}
