//! The requester without losses: the packets it sends, and the effect of each answer.

mod common;

use backend_roce::proto::PathMtu;
use backend_roce::proto::memory::LocalError;
use backend_roce::proto::packet::Opcode;
use backend_roce::proto::requester::{
    Operation, PostError, Request, RequestSlot, Requester, RequesterOptions, Status,
};
use common::packets::{Made, Sent};
use common::requester::{ACK, ATOMIC, Bench, OPTIONS, READ, REMOTE, SEND, WRITE, psn};

/// Spec: ROCE-62..65
#[test]
fn messages_are_cut_into_packets() {
    let mut bench = Bench::new(OPTIONS);
    bench.post_with(SEND, 600, false, true).expect("room");
    let write = Operation::Write {
        remote: REMOTE,
        immediate: Some([1, 2, 3, 4]),
    };
    bench.post_with(write, 257, false, true).expect("room");
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
    let solicits: Vec<bool> = packets.iter().map(|sent| sent.solicited).collect();
    assert_eq!(solicits, [false, false, true, false, true, false]);
    let reth = packets[3].extensions.reth.expect("RETH");
    assert_eq!((reth.remote, reth.length), (REMOTE, 257));
    assert_eq!(packets[4].extensions.immediate, Some([1, 2, 3, 4]));
}

/// Spec: ROCE-17, ROCE-65, ROCE-127
#[test]
fn the_last_packet_of_a_message_names_the_key_that_it_invalidates() {
    for (length, opcodes) in [
        (0, vec![Opcode::SendOnlyInvalidate]),
        (256, vec![Opcode::SendOnlyInvalidate]),
        (
            600,
            vec![
                Opcode::SendFirst,
                Opcode::SendMiddle,
                Opcode::SendLastInvalidate,
            ],
        ),
    ] {
        let mut bench = Bench::new(OPTIONS);
        let operation = Operation::SendInvalidate { key: 0x1234_5678 };
        let posted = bench.post_with(operation, length, false, true);
        posted.expect("room");
        let packets: Vec<_> = std::iter::from_fn(|| bench.transmit()).collect();
        let sent: Vec<_> = packets.iter().map(|packet| packet.opcode).collect();
        assert_eq!(sent, opcodes);
        let last = packets.len() - 1;
        for (index, packet) in packets.iter().enumerate() {
            let key = (index == last).then_some(0x1234_5678);
            assert_eq!(packet.extensions.invalidate, key);
            assert_eq!(packet.extensions.immediate, None);
            assert_eq!(packet.solicited, index == last);
        }
    }
}

/// A Read takes a PSN for each response, at least one, and the next request starts after them.
///
/// Spec: ROCE-68
#[test]
fn a_read_takes_the_numbers_of_its_responses() {
    for (length, packets) in [(0, 1), (1, 1), (256, 1), (257, 2), (512, 2), (600, 3)] {
        let mut bench = Bench::new(OPTIONS);
        bench.post(READ, length);
        bench.post(READ, length);
        bench.post(WRITE, 8);
        let sent = [
            (Opcode::ReadRequest, 0),
            (Opcode::ReadRequest, packets),
            (Opcode::WriteOnly, 2 * packets),
        ];
        assert_eq!(bench.drain(), sent, "{length}");
    }
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
