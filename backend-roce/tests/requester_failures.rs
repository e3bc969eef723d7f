//! The requester after losses, refusals and answers that do not fit.

mod common;

use backend_roce::proto::coded_time;
use backend_roce::proto::packet::{NakCode, Opcode, RnrTimer, Syndrome};
use backend_roce::proto::requester::{Operation, RequesterOptions, Status};
use common::packets::Made;
use common::requester::{ACK, ATOMIC, Bench, OPTIONS, READ, SEND, WRITE, psn};
use dat_core::time::Instant;

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
