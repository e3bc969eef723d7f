//! The requester alone: what it sends, and what each answer does.

mod common;

use backend_roce::proto::memory::{AtomicOperation, LocalError, RemoteAddress};
use backend_roce::proto::packet::{NakCode, Opcode, RnrTimer, Syndrome};
use backend_roce::proto::requester::{
    Completion, Operation, PostError, Request, RequestSlot, Requester, RequesterOptions, Status,
};
use backend_roce::proto::{PathMtu, Psn, coded_time};
use common::memory::Buffers;
use common::packets::{Made, Sent, acknowledge, sent};
use dat_core::time::Instant;

const OPTIONS: RequesterOptions = RequesterOptions {
    destination: 0x12,
    first: Psn::new(0xFF_FFFE),
    mtu: PathMtu::Bytes256,
    initiator_depth: 2,
    run: 1,
    window: 16,
    timeout: 8,
    retry_count: 2,
    rnr_retry_count: 2,
};

/// PSN number `index` of the requester.
fn psn(index: u32) -> u32 {
    OPTIONS.first.plus(index).value()
}

struct Bench {
    requester: Requester<'static>,
    buffers: Buffers,
    now: u64,
    next: u64,
}

const REMOTE: RemoteAddress = RemoteAddress {
    key: 7,
    address: 0x1000,
};
const SEND: Operation = Operation::Send { immediate: None };
const WRITE: Operation = Operation::Write {
    remote: REMOTE,
    immediate: None,
};
const READ: Operation = Operation::Read { remote: REMOTE };
const ATOMIC: Operation = Operation::Atomic {
    remote: REMOTE,
    operation: AtomicOperation::FetchAdd(1),
};
const ACK: Syndrome = Syndrome::Acknowledgement;

impl Bench {
    fn new(options: RequesterOptions) -> Self {
        let slots = Box::leak(Box::new([RequestSlot::EMPTY; 8]));
        Self {
            requester: Requester::new(options, slots),
            buffers: Buffers::default(),
            now: 0,
            next: 0,
        }
    }

    fn post(&mut self, operation: Operation, length: u32) {
        self.post_with(operation, length, false, false)
            .expect("room");
    }

    fn post_with(
        &mut self,
        operation: Operation,
        length: u32,
        fence: bool,
        solicited: bool,
    ) -> Result<(), PostError> {
        let token = self.next;
        self.requester.post(Request {
            token,
            operation,
            length,
            fence,
            solicited,
        })?;
        let bytes = (0..length)
            .map(|index| (index / 256 + index) as u8)
            .collect();
        self.buffers.0.insert(token, bytes);
        self.next += 1;
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.now)
    }

    fn transmit(&mut self) -> Option<Sent> {
        let mut buffer = [0; 512];
        let now = self.now();
        let length = self
            .requester
            .transmit(now, &mut self.buffers, &mut buffer)?;
        Some(sent(&buffer[..length]))
    }

    /// Sends everything; returns the opcodes and the index of the PSNs.
    fn drain(&mut self) -> Vec<(Opcode, u32)> {
        let index = |sent: Sent| (sent.opcode, Psn::new(sent.psn).since(OPTIONS.first));
        std::iter::from_fn(|| self.transmit().map(index)).collect()
    }

    fn receive(&mut self, made: &Made) {
        let now = self.now();
        self.requester
            .receive(now, &made.packet(), &mut self.buffers);
    }

    fn answer(&mut self, index: u32, syndrome: Syndrome) {
        self.receive(&acknowledge(psn(index), syndrome));
    }

    fn respond(&mut self, index: u32, length: usize) {
        let made = Made::new(
            Opcode::ReadResponseMiddle,
            psn(index),
            &vec![index as u8 + 1; length],
        );
        self.receive(&made);
    }

    fn completions(&mut self) -> Vec<(u64, Status)> {
        let of = |done: Completion| (done.token, done.status);
        std::iter::from_fn(|| self.requester.poll().map(of)).collect()
    }

    fn expire(&mut self) {
        self.now = self.requester.deadline().expect("a deadline").as_micros();
        let now = self.now();
        self.requester.expire(now);
    }
}

/// Spec: ROCE-62..65, ROCE-68
#[test]
fn messages_are_cut_into_packets() {
    let mut bench = Bench::new(OPTIONS);
    bench.post_with(SEND, 600, false, true).expect("room");
    bench.post(
        Operation::Write {
            remote: REMOTE,
            immediate: Some([1, 2, 3, 4]),
        },
        257,
    );
    bench.post_with(WRITE, 0, false, true).expect("room");
    let packets: Vec<Sent> = std::iter::from_fn(|| bench.transmit()).collect();
    let opcodes: Vec<Opcode> = packets.iter().map(|sent| sent.opcode).collect();
    use Opcode::*;
    assert_eq!(
        opcodes,
        [
            SendFirst,
            SendMiddle,
            SendLast,
            WriteFirst,
            WriteLastImmediate,
            WriteOnly
        ]
    );
    let lengths: Vec<usize> = packets.iter().map(|sent| sent.payload.len()).collect();
    assert_eq!(lengths, [256, 256, 88, 256, 1, 0]);
    let data: Vec<u8> = packets[..3]
        .iter()
        .flat_map(|sent| sent.payload.clone())
        .collect();
    assert_eq!(data, bench.buffers.0[&0]);
    assert!(
        packets
            .iter()
            .enumerate()
            .all(|(index, sent)| sent.psn == psn(index as u32))
    );
    let asks: Vec<bool> = packets.iter().map(|sent| sent.acknowledge).collect();
    assert_eq!(asks, [false, false, true, false, true, true]);
    let reth = packets[3].extensions.reth.expect("RETH");
    assert_eq!((reth.remote, reth.length), (REMOTE, 257));
    assert_eq!(packets[4].extensions.immediate, Some([1, 2, 3, 4]));
}

/// Spec: ROCE-64..65
#[test]
fn acknowledgements_and_events_are_asked_for_where_they_must() {
    // 40 packets in a window of 16: each fourth one.
    let mut bench = Bench::new(OPTIONS);
    bench.post(WRITE, 40 * 256);
    let asks: Vec<bool> = std::iter::from_fn(|| bench.transmit())
        .map(|sent| sent.acknowledge)
        .collect();
    let expected: Vec<bool> = (0..16).map(|index| index % 4 == 3).collect();
    assert_eq!(asks, expected);
    // Solicited, in the header: only Sends and immediate data.
    for (operation, solicits) in [
        (SEND, true),
        (
            Operation::Write {
                remote: REMOTE,
                immediate: Some([0; 4]),
            },
            true,
        ),
        (WRITE, false),
        (READ, false),
        (ATOMIC, false),
    ] {
        let mut bench = Bench::new(OPTIONS);
        bench.post_with(operation, 8, false, true).expect("room");
        let mut buffer = [0; 512];
        let now = bench.now();
        bench
            .requester
            .transmit(now, &mut bench.buffers, &mut buffer)
            .expect("a packet");
        assert_eq!(buffer[1] & 0x80 != 0, solicits, "{operation:?}");
    }
}

/// Spec: ROCE-24, ROCE-70
#[test]
fn requests_beyond_the_limits_are_refused() {
    let mut bench = Bench::new(OPTIONS);
    let post = |bench: &mut Bench, operation, length| {
        bench.requester.post(Request {
            token: 0,
            operation,
            length,
            fence: false,
            solicited: false,
        })
    };
    assert_eq!(
        post(&mut bench, WRITE, (1 << 31) + 1),
        Err(PostError::Length)
    );
    // 2^23 packets of 256 bytes.
    assert_eq!(post(&mut bench, READ, 1 << 31), Err(PostError::Length));
    assert_eq!(post(&mut bench, ATOMIC, 4), Err(PostError::Length));
    for _ in 0..8 {
        assert_eq!(post(&mut bench, WRITE, 1), Ok(()));
    }
    assert_eq!(post(&mut bench, WRITE, 1), Err(PostError::Full));
    // A power of two of the slots is used; without a slot nothing is posted.
    for (count, room) in [(7, 4), (1, 1), (0, 0)] {
        let slots = Box::leak(vec![RequestSlot::EMPTY; count].into_boxed_slice());
        bench.requester = Requester::new(OPTIONS, slots);
        for _ in 0..room {
            assert_eq!(post(&mut bench, WRITE, 1), Ok(()));
        }
        assert_eq!(post(&mut bench, WRITE, 1), Err(PostError::Full));
    }
    let mut bench = Bench::new(RequesterOptions {
        initiator_depth: 0,
        mtu: PathMtu::Bytes512,
        ..OPTIONS
    });
    assert_eq!(post(&mut bench, READ, 1), Err(PostError::Depth));
    assert_eq!(post(&mut bench, ATOMIC, 8), Err(PostError::Depth));
    assert_eq!(post(&mut bench, WRITE, 1 << 31), Ok(()));
}

/// Spec: ROCE-66..67
#[test]
fn the_window_bounds_what_is_under_way_and_halves_on_loss() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(WRITE, 100 * 256);
    assert_eq!(bench.drain().len(), 16);
    bench.answer(7, ACK);
    assert_eq!(bench.drain().len(), 8);
    bench.expire();
    assert_eq!(bench.requester.window(), 8);
    let again = bench.drain();
    assert_eq!((again.len(), again[0].1), (8, 8));
    // It grows by one for each window acknowledged.
    bench.answer(15, ACK);
    assert_eq!(bench.requester.window(), 9);
    for _ in 0..60 {
        bench.drain();
        let Some(last) = bench.requester.deadline().map(|_| 99) else {
            break;
        };
        for index in (16..=last).step_by(4) {
            bench.answer(index, ACK);
        }
    }
    assert!(bench.requester.window() <= 16);
    for _ in 0..10 {
        let mut bench = Bench::new(RequesterOptions {
            retry_count: 7,
            ..OPTIONS
        });
        bench.post(WRITE, 100 * 256);
        bench.drain();
        for size in [8, 4, 2, 1, 1] {
            bench.expire();
            assert_eq!(bench.requester.window(), size);
            assert_eq!(bench.drain().len(), size as usize);
        }
    }
}

/// Spec: ROCE-69, ROCE-75
#[test]
fn a_long_read_is_asked_for_in_parts() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(READ, 20 * 256 + 100);
    bench.post(SEND, 1);
    let request = bench.transmit().expect("a request");
    let reth = request.extensions.reth.expect("RETH");
    assert_eq!(
        (request.psn, reth.remote.address, reth.length),
        (psn(0), 0x1000, 16 * 256)
    );
    assert_eq!(bench.transmit(), None);
    for index in 0..15 {
        bench.respond(index, 256);
        assert_eq!(bench.transmit(), None, "a part at a time");
    }
    bench.respond(15, 256);
    let request = bench.transmit().expect("a request");
    let reth = request.extensions.reth.expect("RETH");
    assert_eq!(
        (request.psn, reth.remote.address, reth.length),
        (psn(16), 0x1000 + 16 * 256, 4 * 256 + 100)
    );
    assert_eq!(bench.drain(), [(Opcode::SendOnly, 21)]);
    for index in 16..20 {
        bench.respond(index, 256);
    }
    assert_eq!(bench.completions(), []);
    bench.respond(20, 100);
    assert_eq!(bench.completions(), [(0, Status::Success)]);
    let expected: Vec<u8> = (0..20 * 256 + 100)
        .map(|index| (index / 256 + 1) as u8)
        .collect();
    assert_eq!(bench.buffers.0[&0], expected);
}

/// Spec: ROCE-69, ROCE-75
#[test]
fn a_repeated_part_of_a_read_ends_where_the_part_ended() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(READ, 20 * 256);
    bench.drain();
    for index in 0..14 {
        bench.respond(index, 256);
    }
    bench.expire();
    // The peer remembers a Read of 16 packets: what goes beyond it is no repetition.
    assert_eq!(bench.requester.window(), 8);
    let again = bench.transmit().expect("the rest of the part");
    let reth = again.extensions.reth.expect("RETH");
    assert_eq!((again.psn, reth.length), (psn(14), 2 * 256));
    assert_eq!(bench.transmit(), None);
}

/// Spec: ROCE-70..71
#[test]
fn depth_and_fences_hold_requests_back() {
    let mut bench = Bench::new(OPTIONS);
    for operation in [READ, ATOMIC, WRITE, ATOMIC] {
        bench.post(operation, 8);
    }
    use Opcode::*;
    assert_eq!(
        bench.drain(),
        [(ReadRequest, 0), (FetchAdd, 1), (WriteOnly, 2)]
    );
    bench.respond(0, 8);
    assert_eq!(bench.drain(), [(FetchAdd, 3)]);
    bench.post_with(WRITE, 1, true, false).expect("room");
    bench.post(SEND, 1);
    let atomic = |index| {
        Made::new(AtomicAcknowledge, psn(index), &[])
            .aeth(ACK)
            .original(42)
    };
    bench.receive(&atomic(1));
    assert_eq!(bench.drain(), []);
    bench.answer(2, ACK);
    assert_eq!(bench.drain(), []);
    bench.receive(&atomic(3));
    assert_eq!(bench.drain(), [(WriteOnly, 4), (SendOnly, 5)]);
    assert_eq!(bench.buffers.0[&1], 42_u64.to_ne_bytes());
}

/// Spec: ROCE-72, ROCE-84..85
#[test]
fn an_acknowledgement_covers_everything_before_it() {
    let mut bench = Bench::new(OPTIONS);
    for operation in [SEND, WRITE, SEND] {
        bench.post(operation, 300);
    }
    assert_eq!(bench.drain().len(), 6);
    // Of what is not under way: before the first PSN, and after the last one.
    for index in [0xFF_FFFF, 6, 7, 0x7F_FFFF] {
        bench.answer(index, ACK);
    }
    assert_eq!(bench.completions(), []);
    bench.answer(4, ACK);
    assert_eq!(
        bench.completions(),
        [(0, Status::Success), (1, Status::Success)]
    );
    bench.answer(3, ACK);
    assert_eq!(bench.completions(), []);
    bench.answer(5, ACK);
    assert_eq!(bench.completions(), [(2, Status::Success)]);
    assert_eq!(
        (bench.requester.deadline(), bench.requester.is_idle()),
        (None, true)
    );
}

/// Spec: ROCE-73..75
#[test]
fn a_lost_response_is_asked_for_again_once() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(READ, 4 * 256);
    bench.post(WRITE, 1);
    assert_eq!(
        bench.drain(),
        [(Opcode::ReadRequest, 0), (Opcode::WriteOnly, 4)]
    );
    bench.respond(0, 256);
    // A later response, and an acknowledgement: both mean the same loss.
    bench.respond(2, 256);
    bench.answer(4, ACK);
    assert_eq!(bench.completions(), []);
    let again = bench.transmit().expect("the rest");
    let reth = again.extensions.reth.expect("RETH");
    assert_eq!(
        (again.psn, reth.remote.address, reth.length),
        (psn(1), 0x1000 + 256, 3 * 256)
    );
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 4)]);
    bench.respond(3, 256);
    bench.answer(4, ACK);
    assert_eq!(bench.drain(), [], "once until there is progress");
    for index in [1, 0, 2, 3] {
        bench.respond(index, 256);
    }
    bench.answer(4, ACK);
    assert_eq!(
        bench.completions(),
        [(0, Status::Success), (1, Status::Success)]
    );
    assert_eq!(bench.buffers.0[&0][..3], [1, 1, 1]);
    assert_eq!(bench.buffers.0[&0][1023], 4);
}

/// Spec: ROCE-76
#[test]
fn a_response_that_does_not_fit_fails_the_read() {
    for length in [0, 255, 257] {
        let mut bench = Bench::new(OPTIONS);
        bench.post(READ, 600);
        bench.drain();
        bench.respond(0, length);
        assert_eq!(bench.completions(), [(0, Status::BadResponse)]);
        assert!(bench.requester.is_ended());
    }
    let mut bench = Bench::new(OPTIONS);
    bench.post(ATOMIC, 8);
    bench.drain();
    bench.respond(0, 8);
    assert_eq!(bench.completions(), [(0, Status::BadResponse)]);
}

/// Spec: ROCE-77, ROCE-88, ROCE-90
#[test]
fn a_sequence_error_repeats_from_its_psn() {
    let mut bench = Bench::new(OPTIONS);
    for _ in 0..4 {
        bench.post(WRITE, 256);
    }
    bench.drain();
    bench.buffers.0.insert(2, vec![9; 256]);
    bench.answer(2, Syndrome::Negative(NakCode::SequenceError));
    assert_eq!(
        bench.completions(),
        [(0, Status::Success), (1, Status::Success)]
    );
    let again = bench.transmit().expect("a packet");
    assert_eq!(
        (again.psn, again.payload),
        (psn(2), vec![9; 256]),
        "memory is read again"
    );
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 3)]);
    // An acknowledgement while packets are repeated: those that it covers are not sent any more.
    bench.answer(2, Syndrome::Negative(NakCode::SequenceError));
    bench.answer(2, ACK);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 3)]);
}

/// Spec: ROCE-78..79, ROCE-83
#[test]
fn a_peer_without_a_receive_is_tried_again_later() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(WRITE, 1);
    bench.post(SEND, 1);
    bench.drain();
    let not_ready = Syndrome::ReceiverNotReady(RnrTimer::from_code(8));
    for round in 0..2 {
        bench.answer(1, not_ready);
        bench.answer(1, not_ready);
        assert_eq!(
            bench.requester.deadline(),
            Some(Instant::from_micros(bench.now + 160))
        );
        assert_eq!(bench.drain(), []);
        bench.now += 159;
        assert_eq!(bench.drain(), []);
        bench.expire();
        assert_eq!(bench.drain(), [(Opcode::SendOnly, 1)], "{round}");
    }
    assert_eq!(bench.completions(), [(0, Status::Success)]);
    bench.answer(1, not_ready);
    assert_eq!(bench.completions(), [(1, Status::RnrRetryExceeded)]);
    // For ever; and progress resets the count.
    for rnr_retry_count in [7, 1] {
        let mut bench = Bench::new(RequesterOptions {
            rnr_retry_count,
            ..OPTIONS
        });
        for _ in 0..8 {
            bench.post(SEND, 1);
        }
        for index in 0..8 {
            bench.drain();
            for _ in 0..if rnr_retry_count == 7 { 20 } else { 1 } {
                bench.answer(index, not_ready);
                bench.expire();
                bench.drain();
            }
            bench.answer(index, ACK);
        }
        assert_eq!(bench.completions().len(), 8);
    }
}

/// Spec: ROCE-80, ROCE-86
#[test]
fn a_refusal_fails_its_request_and_flushes_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccess, Status::RemoteAccess),
        (NakCode::RemoteOperational, Status::RemoteOperational),
    ] {
        let mut bench = Bench::new(OPTIONS);
        for operation in [SEND, WRITE, SEND] {
            bench.post(operation, 300);
        }
        bench.drain();
        bench.answer(3, Syndrome::Negative(code));
        let expected = [(0, Status::Success), (1, status), (2, Status::Flushed)];
        assert_eq!(bench.completions(), expected);
        assert_eq!((bench.drain(), bench.requester.deadline()), (vec![], None));
        bench.post(SEND, 1);
        assert_eq!(bench.completions(), [(3, Status::Flushed)]);
        bench.answer(5, ACK);
        assert_eq!(bench.completions(), []);
    }
    let mut bench = Bench::new(OPTIONS);
    bench.post(READ, 8);
    bench.post(WRITE, 8);
    bench.drain();
    bench.answer(1, Syndrome::Negative(NakCode::RemoteAccess));
    assert_eq!(
        bench.completions(),
        [(0, Status::Flushed), (1, Status::RemoteAccess)]
    );
}

/// Spec: ROCE-81..83
#[test]
fn silence_is_a_loss_and_then_an_error() {
    let mut bench = Bench::new(OPTIONS);
    bench.post(SEND, 600);
    let first = bench.drain();
    assert_eq!(
        bench.requester.deadline(),
        Some(Instant::from_micros(coded_time(8)))
    );
    bench.expire();
    assert_eq!(bench.drain(), first);
    bench.answer(1, ACK);
    for _ in 0..2 {
        bench.expire();
        assert_eq!(bench.drain(), [(Opcode::SendLast, 2)]);
    }
    // An RNR NAK resets the count, since the peer lives.
    bench.answer(2, Syndrome::ReceiverNotReady(RnrTimer::from_code(1)));
    bench.expire();
    for _ in 0..2 {
        bench.drain();
        bench.expire();
        assert_eq!(bench.completions(), []);
    }
    bench.drain();
    bench.expire();
    assert_eq!(bench.completions(), [(0, Status::RetryExceeded)]);
    assert_eq!(bench.requester.counts().timeouts, 6);

    let mut bench = Bench::new(RequesterOptions {
        timeout: 0,
        ..OPTIONS
    });
    bench.post(SEND, 1);
    bench.drain();
    assert_eq!(bench.requester.deadline(), None);
    let mut seven = Bench::new(RequesterOptions {
        retry_count: 7,
        ..OPTIONS
    });
    seven.post(SEND, 1);
    for _ in 0..8 {
        assert_eq!(seven.completions(), []);
        seven.drain();
        seven.expire();
    }
    assert_eq!(seven.completions(), [(0, Status::RetryExceeded)]);
}

/// Spec: ROCE-89
#[test]
fn local_memory_that_went_away_fails_its_request() {
    let mut bench = Bench::new(OPTIONS);
    for _ in 0..3 {
        bench.post(WRITE, 8);
    }
    bench.buffers.0.remove(&1);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 0)]);
    let expected = [
        (0, Status::Flushed),
        (1, Status::LocalProtection),
        (2, Status::Flushed),
    ];
    assert_eq!(bench.completions(), expected);
    let mut bench = Bench::new(OPTIONS);
    bench.post(READ, 8);
    bench.drain();
    bench.buffers.0.clear();
    bench.respond(0, 8);
    assert_eq!(bench.completions(), [(0, Status::LocalProtection)]);
}

/// Spec: ROCE-85, ROCE-91
#[test]
fn a_local_operation_takes_its_turn() {
    let mut bench = Bench::new(OPTIONS);
    for operation in [SEND, READ, Operation::Local, Operation::Local, SEND] {
        bench.post(operation, 8);
    }
    assert_eq!(
        bench.drain(),
        [(Opcode::SendOnly, 0), (Opcode::ReadRequest, 1)]
    );
    bench.answer(0, ACK);
    bench.requester.finish_local(Ok(()));
    assert_eq!(
        (bench.requester.next_local(), bench.drain()),
        (None, vec![])
    );
    bench.respond(1, 8);
    assert_eq!(
        (bench.requester.next_local(), bench.drain()),
        (Some(2), vec![])
    );
    assert_eq!(
        bench.completions(),
        [(0, Status::Success), (1, Status::Success)]
    );
    bench.requester.finish_local(Ok(()));
    assert_eq!(
        (bench.requester.next_local(), bench.drain()),
        (Some(3), vec![])
    );
    bench.requester.finish_local(Ok(()));
    assert_eq!(bench.requester.next_local(), None);
    assert_eq!(bench.drain(), [(Opcode::SendOnly, 2)]);
    bench.answer(2, ACK);
    let expected = [
        (2, Status::Success),
        (3, Status::Success),
        (4, Status::Success),
    ];
    assert_eq!(bench.completions(), expected);

    let mut bench = Bench::new(OPTIONS);
    bench.post(Operation::Local, 0);
    bench.post(SEND, 1);
    bench.requester.finish_local(Err(LocalError));
    assert_eq!(
        (bench.requester.next_local(), bench.drain()),
        (None, vec![])
    );
    assert_eq!(
        bench.completions(),
        [(0, Status::LocalProtection), (1, Status::Flushed)]
    );
}

/// Spec: ROCE-19, ROCE-26, ROCE-84
#[test]
fn any_answers_of_a_hostile_peer_end_in_one_completion_each() {
    let seed = 84;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..2_000 {
        let mut bench = Bench::new(OPTIONS);
        let mut done = Vec::new();
        for _ in 0..100 {
            if random.bool() {
                let operation = [SEND, WRITE, READ, ATOMIC, Operation::Local][random.usize(..5)];
                let length = if operation == ATOMIC {
                    8
                } else {
                    random.u32(..700)
                };
                let _ = bench.post_with(operation, length, random.bool(), random.bool());
            }
            bench.requester.finish_local(Ok(()));
            bench.drain();
            if random.u8(..10) == 0 && bench.requester.deadline().is_some() {
                bench.expire();
            }
            let opcode = Opcode::ALL[random.usize(..Opcode::ALL.len())];
            let syndrome = match random.u8(..20) {
                0 => Syndrome::Negative(NakCode::RemoteAccess),
                1..4 => Syndrome::Negative(NakCode::SequenceError),
                4..6 => Syndrome::ReceiverNotReady(RnrTimer::from_code(random.u8(..32))),
                6 => Syndrome::Unknown(0xFF),
                _ => ACK,
            };
            let length = [0, 8, 256, random.usize(..300)][random.usize(..4)];
            let mut made = Made::new(opcode, psn(random.u32(..24)), &vec![0; length]);
            made.header.extensions.aeth = (random.u8(..8) != 0)
                .then_some(backend_roce::proto::packet::Aeth { syndrome, msn: 0 });
            bench.receive(&made);
            done.extend(bench.completions());
        }
        bench.requester.end();
        done.extend(bench.completions());
        let tokens: Vec<u64> = done.iter().map(|(token, _)| *token).collect();
        let expected: Vec<u64> = (0..bench.next).collect();
        assert_eq!(tokens, expected);
    }
}

/// A Read that is repeated in a smaller window stays one Read at the responder.
///
/// Spec: ROCE-69..70, ROCE-75
#[test]
fn repeated_read_is_one_request_in_a_smaller_window() {
    let mut bench = Bench::new(RequesterOptions {
        initiator_depth: 1,
        ..OPTIONS
    });
    bench.post(READ, 16 * 256);
    bench.drain();
    bench.expire();
    let again = bench.transmit().expect("the Read");
    assert_eq!(again.extensions.reth.expect("RETH").length, 16 * 256);
    bench.respond(0, 256);
    assert_eq!(bench.transmit(), None, "a second Read");
}

/// Short requests wait while more of them are under way than wait; all that have gathered leave.
///
/// Spec: ROCE-184
#[test]
fn short_requests_gather_while_others_are_under_way() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    // The first four find fewer than four others.
    for index in 0..4 {
        bench.post(WRITE, 8);
        assert_eq!(bench.drain(), [(Opcode::WriteOnly, index)]);
    }
    for _ in 0..3 {
        bench.post(WRITE, 8);
        assert!(bench.requester.gathers());
        assert!(!bench.requester.has_output());
        assert_eq!(bench.drain(), []);
    }
    // As many as are under way.
    bench.post(WRITE, 8);
    assert!(bench.requester.has_output());
    let run = [4, 5, 6, 7].map(|index| (Opcode::WriteOnly, index));
    assert_eq!(bench.drain(), run);
    // The first four are complete: four are under way, and a fifth one waits.
    bench.answer(3, ACK);
    assert_eq!(bench.completions().len(), 4);
    bench.post(WRITE, 8);
    assert_eq!(bench.drain(), []);
    bench.answer(4, ACK);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 8)]);
}

/// A long request waits for no others, and takes those before it along.
///
/// Spec: ROCE-184
#[test]
fn a_long_request_gathers_no_others() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    for _ in 0..5 {
        bench.post(WRITE, 8);
        bench.drain();
    }
    bench.post(WRITE, 1000);
    let sent = bench.drain();
    assert_eq!(sent.first(), Some(&(Opcode::WriteOnly, 4)));
    assert_eq!(sent.last(), Some(&(Opcode::WriteLast, 8)));
}

/// Gathered requests leave after a time-out at the latest; without runs none gather.
///
/// Spec: ROCE-184
#[test]
fn gathered_requests_leave_after_a_time_out() {
    let mut bench = Bench::new(RequesterOptions { run: 64, ..OPTIONS });
    for _ in 0..5 {
        bench.post(WRITE, 8);
        bench.drain();
    }
    bench.expire();
    assert_eq!(bench.drain().len(), 4);
    bench.answer(3, ACK);
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 4)]);

    let mut single = Bench::new(OPTIONS);
    for index in 0..7 {
        single.post(WRITE, 8);
        assert_eq!(single.drain(), [(Opcode::WriteOnly, index)]);
    }
}

/// Short requests wait for a full send while the caller is about to post more.
///
/// Spec: ROCE-185
#[test]
fn short_requests_gather_while_more_are_expected() {
    let mut bench = Bench::new(RequesterOptions { run: 6, ..OPTIONS });
    bench.requester.expect_more(true);
    for _ in 0..5 {
        bench.post(WRITE, 8);
        assert_eq!(bench.drain(), []);
    }
    bench.post(WRITE, 8);
    assert_eq!(bench.drain().len(), 6);
    bench.answer(5, ACK);
    assert_eq!(bench.completions().len(), 6);
    // Nothing is under way, and the caller posts no more.
    bench.post(WRITE, 8);
    assert_eq!(bench.drain(), []);
    bench.requester.expect_more(false);
    assert!(bench.requester.has_output());
    assert_eq!(bench.drain(), [(Opcode::WriteOnly, 6)]);
    bench.answer(6, ACK);
    // A long one gathers, too, unless it fills a send.
    bench.requester.expect_more(true);
    bench.post(WRITE, 1000);
    assert_eq!(bench.drain(), []);
    bench.post(WRITE, 60_000);
    assert_eq!(bench.drain().len(), 16);
}
