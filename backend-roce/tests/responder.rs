//! The responder alone: what it executes, what it refuses and what it answers.

mod common;

use backend_roce::proto::Psn;
use backend_roce::proto::memory::AtomicOperation;
use backend_roce::proto::packet::{NakCode, Opcode, RnrTimer, Syndrome};
use backend_roce::proto::responder::{Beside, ReceiveCompletion, ReceiveStatus, ResponderOptions};
use common::memory::{BASE, ENDS};
use common::packets::Made;
use common::responder::{
    ACCESS, ACK, Bench, FIRST, INVALID, KEY, NARROW, OPEN, OPTIONS, READ_ONLY, SIZE, add, only,
    psn, read, refused, said, send, write,
};
use fastrand::Rng;

/// Spec: ROCE-117, ROCE-119..120
#[test]
fn one_acknowledgement_answers_a_batch() {
    let mut bench = Bench::usual();
    bench.receives.post(1, 64);
    let batch = [
        write(0, KEY, 0, &[9; 8]),
        write(1, KEY, 8, &[9; 8]),
        send(2, b"abc"),
    ];
    assert_eq!(only(&bench.receive(&batch)), (2, ACK, 3));
    assert_eq!(
        bench.exposed.bytes[..17],
        [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 16]
    );
    // Repeated: answered again, not executed.
    bench.exposed.bytes[..16].fill(0);
    assert_eq!(only(&bench.receive(&batch[..1])), (2, ACK, 3));
    assert_eq!(bench.exposed.bytes[..16], [0; 16]);
    assert_eq!(bench.done.len(), 1);
    // Without the bit, nothing.
    let mut quiet = write(3, KEY, 0, &[1]);
    quiet.header.bth.acknowledge = false;
    assert_eq!(bench.receive(&[quiet]), []);
}

/// Spec: ROCE-101, ROCE-107
#[test]
fn a_gap_is_reported_once() {
    let mut bench = Bench::usual();
    let ahead = [write(3, KEY, 0, &[1]), write(4, KEY, 0, &[1])];
    assert_eq!(
        only(&bench.receive(&ahead)),
        (0, Syndrome::Negative(NakCode::SequenceError), 0)
    );
    assert_eq!(bench.receive(&ahead), []);
    assert!(bench.unchanged());
    assert_eq!(only(&bench.receive(&[write(0, KEY, 0, &[0])])), (0, ACK, 1));
    assert_eq!(
        only(&bench.receive(&ahead)),
        (1, Syndrome::Negative(NakCode::SequenceError), 1)
    );
    // What a NAK acknowledged is acknowledged if the NAK itself was overtaken.
    let mut quiet = write(1, KEY, 1, &[1]);
    quiet.header.bth.acknowledge = false;
    assert_eq!(bench.receive(&[quiet.clone()]), []);
    let mut bench = Bench::usual();
    quiet.header.bth.psn = Psn::new(psn(1));
    assert_eq!(
        only(&bench.receive(&[write(0, KEY, 0, &[0]), ahead[0].clone(), quiet])),
        (1, ACK, 2)
    );
}

/// Spec: ROCE-102..104
#[test]
fn packets_that_do_not_continue_a_message_are_refused() {
    let packet = |opcode, index, length: usize| Made::new(opcode, psn(index), &vec![0xEE; length]);
    let first = |length: u32| packet(Opcode::WriteFirst, 0, 256).reth(KEY, BASE, length);
    use Opcode::*;
    for (packets, index) in [
        (vec![packet(WriteMiddle, 0, 256)], 0),
        (vec![packet(WriteLast, 0, 1)], 0),
        (vec![packet(SendMiddle, 0, 256)], 0),
        (vec![packet(SendLast, 0, 1)], 0),
        // Another message, or another kind of packet, in the middle of one.
        (
            vec![first(600), packet(WriteFirst, 1, 256).reth(KEY, BASE, 600)],
            1,
        ),
        (vec![first(600), packet(SendMiddle, 1, 256)], 1),
        (vec![first(600), write(1, KEY, 0, &[1])], 1),
        (vec![first(600), read(1, KEY, 0, 1)], 1),
        (vec![first(600), add(1, KEY, 0, 1)], 1),
        (vec![packet(SendFirst, 0, 256), send(1, &[1])], 1),
        (vec![packet(SendFirst, 0, 256), packet(WriteLast, 1, 1)], 1),
        // Lengths of packets.
        (vec![packet(SendFirst, 0, 255)], 0),
        (
            vec![packet(SendFirst, 0, 256), packet(SendMiddle, 1, 252)],
            1,
        ),
        (vec![packet(SendFirst, 0, 256), packet(SendLast, 1, 0)], 1),
        (vec![packet(SendFirst, 0, 256), packet(SendLast, 1, 260)], 1),
        (vec![packet(SendOnly, 0, 260)], 0),
        (vec![packet(WriteOnly, 0, 260).reth(KEY, BASE, 260)], 0),
        (vec![packet(WriteFirst, 0, 128).reth(KEY, BASE, 600)], 0),
        // Lengths of messages.
        (vec![packet(WriteOnly, 0, 4).reth(KEY, BASE, 5)], 0),
        (vec![packet(WriteOnly, 0, 4).reth(KEY, BASE, 3)], 0),
        (vec![first(256)], 0),
        (
            vec![
                first(600),
                packet(WriteMiddle, 1, 256),
                packet(WriteLast, 2, 87),
            ],
            2,
        ),
        (
            vec![
                first(600),
                packet(WriteMiddle, 1, 256),
                packet(WriteLast, 2, 89),
            ],
            2,
        ),
        (
            vec![
                first(600),
                packet(WriteMiddle, 1, 256),
                packet(WriteMiddle, 2, 256),
            ],
            2,
        ),
        (vec![first(600), packet(WriteLast, 1, 88)], 1),
    ] {
        let mut bench = Bench::usual();
        bench.receives.post(1, 4096);
        bench.receives.post(2, 4096);
        refused(bench, &packets, index, INVALID);
    }
}

/// Spec: ROCE-105, ROCE-127
#[test]
fn operations_that_are_not_permitted_are_refused() {
    for (packet, options) in [
        (
            write(0, KEY, 0, &[1]),
            ResponderOptions {
                remote_write: false,
                ..OPTIONS
            },
        ),
        (
            write(0, KEY, 0, &[]),
            ResponderOptions {
                remote_write: false,
                ..OPTIONS
            },
        ),
        (
            read(0, KEY, 0, 8),
            ResponderOptions {
                remote_read: false,
                ..OPTIONS
            },
        ),
        (
            add(0, KEY, 0, 8),
            ResponderOptions {
                remote_atomic: false,
                ..OPTIONS
            },
        ),
    ] {
        let bench = refused(Bench::new(options, 2), &[packet], 0, INVALID);
        assert!(bench.unchanged());
    }
}

/// Spec: ROCE-39, ROCE-109..110, ROCE-123
#[test]
fn keys_ranges_and_rights_are_enforced() {
    let (start, end) = (OPEN.start, OPEN.end);
    let first = |key, at: usize, length| {
        Made::new(Opcode::WriteFirst, psn(0), &[0xEE; 256]).reth(key, BASE + at as u64, length)
    };
    for packet in [
        write(0, KEY + 9, 0, &[1]),
        write(0, NARROW, start - 1, &[1, 2]),
        write(0, NARROW, end, &[1]),
        write(0, NARROW, end - 1, &[1, 2]),
        write(0, READ_ONLY, 0, &[1]),
        write(0, KEY, SIZE, &[1]),
        write(0, KEY, usize::MAX, &[1]),
        // The first packet is inside, the message is not.
        first(NARROW, start, 401),
        first(KEY, SIZE - 300, 301),
        first(READ_ONLY, 0, 300),
        read(0, KEY + 9, 0, 8),
        read(0, NARROW, start - 1, 8),
        read(0, NARROW, start, 401),
        add(0, NARROW, start, 1),
        add(0, KEY, SIZE, 1),
        Made::new(Opcode::WriteOnlyImmediate, psn(0), &[1])
            .reth(NARROW, BASE, 1)
            .immediate([0; 4]),
    ] {
        let mut bench = Bench::usual();
        bench.receives.post(1, 64);
        let bench = refused(bench, std::slice::from_ref(&packet), 0, ACCESS);
        assert!(bench.unchanged(), "{packet:?}");
        assert!(bench.done.is_empty(), "no receive is taken");
    }
    let mut bench = Bench::usual();
    assert_eq!(
        only(&bench.receive(&[
            write(0, NARROW, start, &[7; 200]),
            write(1, NARROW, end - 200, &[8; 200])
        ])),
        (1, ACK, 2)
    );
    assert_eq!(
        (bench.exposed.bytes[end - 1], bench.exposed.bytes[end]),
        (8, end as u8)
    );
}

/// Spec: ROCE-127
#[test]
fn a_message_names_the_key_that_it_invalidates() {
    let only_packet = |key| {
        let made = Made::new(Opcode::SendOnlyInvalidate, psn(0), b"abc");
        vec![made.asking().invalidate(key)]
    };
    let packets = |key| {
        let last = Made::new(Opcode::SendLastInvalidate, psn(1), &[7]);
        vec![
            Made::new(Opcode::SendFirst, psn(0), &[7; 256]),
            last.asking().invalidate(key),
        ]
    };
    for (made, length) in [(only_packet(ENDS), 3), (packets(ENDS), 257)] {
        let mut bench = Bench::usual();
        bench.receives.post(1, 300);
        let index = made.len() as u32 - 1;
        assert_eq!(only(&bench.receive(&made)), (index, ACK, 1));
        let done = &bench.done[0];
        assert_eq!((done.status, done.length), (ReceiveStatus::Success, length));
        assert_eq!(done.beside, Beside::Invalidation(ENDS));
        // A repetition is not executed.
        assert_eq!(only(&bench.receive(&made)), (index, ACK, 1));
        assert_eq!(bench.done.len(), 1);
    }
    for made in [only_packet(KEY), packets(KEY)] {
        let mut bench = Bench::usual();
        bench.receives.post(1, 300);
        let index = made.len() as u32 - 1;
        let bench = refused(bench, &made, index, ACCESS);
        assert_eq!(bench.done.len(), 1);
        let done = &bench.done[0];
        assert_eq!((done.token, done.status), (1, ReceiveStatus::Flushed));
        assert_eq!(done.beside, Beside::Nothing);
    }
    // Without a receive, no key is looked at.
    let mut bench = Bench::usual();
    let not_ready = Syndrome::ReceiverNotReady(RnrTimer::from_code(12));
    let answers = bench.receive(&only_packet(KEY));
    assert_eq!(only(&answers), (0, not_ready, 0));
}

/// Spec: ROCE-111
#[test]
fn transfers_of_no_bytes_check_no_key() {
    let mut bench = Bench::usual();
    assert_eq!(only(&bench.receive(&[write(0, 0, 0, &[])])), (0, ACK, 1));
    let answers = bench.receive(&[read(1, 0, 0, 0)]);
    assert_eq!(
        (answers.len(), answers[0].opcode),
        (1, Opcode::ReadResponseOnly)
    );
    assert_eq!(
        (said(&answers[0]), answers[0].payload.len()),
        ((1, ACK, 2), 0)
    );
    assert_eq!(bench.exposed.refused, 0);
}

/// Spec: ROCE-106..107, ROCE-124
#[test]
fn a_message_without_a_receive_is_not_executed() {
    let mut bench = Bench::usual();
    let not_ready = Syndrome::ReceiverNotReady(RnrTimer::from_code(12));
    let batch = [write(0, KEY, 0, &[1]), send(1, b"abc"), send(2, b"de")];
    assert_eq!(only(&bench.receive(&batch)), (1, not_ready, 1));
    assert_eq!(bench.receive(&batch[2..]), []);
    bench.receives.post(1, 64);
    bench.receives.post(2, 64);
    assert_eq!(only(&bench.receive(&batch[1..])), (2, ACK, 3));
    let done: Vec<_> = bench
        .done
        .drain(..)
        .map(|done| (done.token, done.status, done.length))
        .collect();
    assert_eq!(
        done,
        [
            (1, ReceiveStatus::Success, 3),
            (2, ReceiveStatus::Success, 2)
        ]
    );
    assert_eq!(bench.receives.buffers[&1][..4], *b"abc\0");
    // Of a Write with Immediate, only the packet with the immediate data waits.
    let first = Made::new(Opcode::WriteFirst, psn(3), &[5; 256]).reth(KEY, BASE, 257);
    let mut last = Made::new(Opcode::WriteLastImmediate, psn(4), &[6]).immediate([1, 2, 3, 4]);
    last.header.bth.solicited = true;
    assert_eq!(
        only(&bench.receive(&[first, last.clone()])),
        (4, not_ready, 3)
    );
    assert_eq!((bench.exposed.bytes[255], bench.exposed.bytes[256]), (5, 0));
    bench.receives.post(3, 0);
    assert_eq!(bench.receive(&[last]), []);
    assert_eq!(bench.exposed.bytes[256], 6);
    let expected = ReceiveCompletion {
        token: 3,
        status: ReceiveStatus::Success,
        length: 257,
        beside: Beside::Immediate([1, 2, 3, 4]),
        is_write: true,
        solicited: true,
    };
    assert_eq!(bench.done, [expected]);
}

/// Spec: ROCE-108, ROCE-126, ROCE-129
#[test]
fn a_receive_of_a_message_that_fails_completes_once() {
    let first = Made::new(Opcode::SendFirst, psn(0), &[1; 256]);
    let last = Made::new(Opcode::SendLast, psn(1), &[1; 45]).asking();
    // 300 bytes, for a message of 301.
    let mut bench = Bench::usual();
    bench.receives.post(1, 300);
    let bench = refused(bench, &[first.clone(), last.clone()], 1, INVALID);
    assert_eq!(
        bench
            .done
            .iter()
            .map(|done| (done.token, done.status))
            .collect::<Vec<_>>(),
        [(1, ReceiveStatus::Length)]
    );
    assert_eq!(
        bench.receives.buffers[&1][256..],
        [0; 44],
        "nothing of the packet that is too long"
    );

    let mut bench = Bench::usual();
    bench.receives.post(1, 301);
    bench.receive(std::slice::from_ref(&first));
    bench.receives.buffers.clear();
    let bench = refused(
        bench,
        std::slice::from_ref(&last),
        1,
        Syndrome::Negative(NakCode::RemoteOperational),
    );
    assert_eq!(bench.done[0].status, ReceiveStatus::LocalProtection);

    let mut bench = Bench::usual();
    bench.receives.post(1, 300);
    let bench = refused(bench, &[first.clone(), write(1, KEY, 0, &[1])], 1, INVALID);
    assert_eq!(
        (bench.done.len(), bench.done[0].status),
        (1, ReceiveStatus::Flushed)
    );

    let mut bench = Bench::usual();
    bench.receives.post(1, 300);
    bench.receive(&[first]);
    assert_eq!(
        bench.responder.end().map(|done| done.status),
        Some(ReceiveStatus::Flushed)
    );
    assert_eq!(bench.responder.end(), None);
    assert_eq!(bench.receive(&[last]), []);
}

/// A repeated request takes nothing from a NAK that waits, which acknowledges as much.
///
/// Spec: ROCE-77, ROCE-78, ROCE-101, ROCE-120
#[test]
fn a_repeated_request_leaves_a_waiting_nak() {
    let again = write(0, KEY, 0, &[9; 8]);
    let missing = Syndrome::Negative(NakCode::SequenceError);
    let not_ready = Syndrome::ReceiverNotReady(OPTIONS.rnr_timer);
    for (refused, syndrome) in [
        (write(2, KEY, 0, &[1; 8]), missing),
        (send(1, &[1]), not_ready),
    ] {
        let mut bench = Bench::usual();
        assert_eq!(bench.receive(std::slice::from_ref(&again)).len(), 1);
        let answers = bench.receive(&[refused, again.clone()]);
        let said: Vec<_> = answers.iter().map(said).collect();
        assert_eq!(said, [(1, syndrome, 1)]);
    }
    // One that ends the connection is not replaced either.
    let mut bench = Bench::usual();
    bench.receive(std::slice::from_ref(&again));
    let answers = bench.receive(&[write(1, KEY, SIZE, &[1; 8]), again.clone()]);
    let said: Vec<_> = answers.iter().map(said).collect();
    assert_eq!(said, [(1, ACCESS, 1)]);
}

/// Spec: ROCE-22
#[test]
fn the_time_to_wait_for_a_receive_can_change() {
    let mut bench = Bench::usual();
    let other = RnrTimer::from_code(OPTIONS.rnr_timer.code() + 1);
    bench.responder.set_not_ready_timer(other);
    let answers = bench.receive(&[send(0, &[1])]);
    let said: Vec<_> = answers.iter().map(said).collect();
    assert_eq!(said, [(0, Syndrome::ReceiverNotReady(other), 0)]);
}

/// Spec: ROCE-26, ROCE-39, ROCE-100, ROCE-109..110
#[test]
fn any_requests_of_a_hostile_peer_touch_only_what_is_granted() {
    let seed = 110;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut written = 0;
    for _ in 0..20_000 {
        let mut bench = Bench::usual();
        // Only the window, and the region that is only read.
        bench.exposed.grants.remove(0);
        let mut next = 0;
        let mut taken = 0;
        for token in 0..random.u64(..3) {
            bench.receives.post(token, random.u32(..600));
        }
        for _ in 0..40 {
            let opcode = Opcode::ALL[random.usize(..Opcode::ALL.len())];
            let index = if random.u8(..4) == 0 {
                random.u32(..next + 4)
            } else {
                next
            };
            let length = [0, 1, 256, random.usize(..400)][random.usize(..4)];
            let mut made = Made::new(opcode, psn(index), &vec![0xEE; length]).asking();
            let key = [NARROW, READ_ONLY, KEY, random.u32(..)][random.usize(..4)];
            let at = match random.u8(..4) {
                0 => BASE + random.u64(..SIZE as u64),
                1 => random.u64(..),
                _ => BASE + random.u64(OPEN.start as u64 - 8..OPEN.end as u64 + 8),
            };
            if opcode.has_reth() {
                let total = [
                    length as u32,
                    length as u32,
                    random.u32(..800),
                    random.u32(..),
                ][random.usize(..4)];
                made = made.reth(key, at, total);
            }
            if opcode.has_atomic_eth() {
                made = made.atomic(key, at, AtomicOperation::FetchAdd(random.u64(..)));
            }
            if opcode.has_immediate() {
                made = made.immediate([0; 4]);
            }
            let before = bench.responder.counts().executed;
            bench.receive(&[made]);
            next += u32::from(bench.responder.counts().executed != before);
            next = next.max(bench.responder.expected().since(Psn::new(FIRST)));
            taken += bench.done.drain(..).len();
            if bench.responder.fault().is_some() {
                break;
            }
        }
        taken += usize::from(bench.responder.end().is_some());
        assert_eq!(
            taken,
            bench.receives.buffers.len() - bench.receives.posted.len(),
            "each receive once"
        );
        for (index, byte) in bench.exposed.bytes.iter().enumerate() {
            let changed = *byte != index as u8;
            assert!(
                !changed || OPEN.contains(&index) && *byte == 0xEE,
                "{index}"
            );
            written += u64::from(changed);
        }
    }
    assert!(written > 3_000, "{written}");
}
