//! The responder alone: Reads and atomics, and their repetitions.

mod common;

use backend_roce::proto::Psn;
use backend_roce::proto::memory::AtomicOperation;
use backend_roce::proto::packet::{NakCode, Opcode};
use common::memory::BASE;
use common::packets::Made;
use common::responder::{
    ACCESS, ACK, Bench, FIRST, INVALID, KEY, NARROW, OPTIONS, add, only, psn, read, refused, said,
    write,
};

/// Spec: ROCE-112..113, ROCE-118..119
#[test]
fn a_read_is_answered_in_packets_before_later_acknowledgements() {
    let mut bench = Bench::usual();
    let answers = bench.receive(&[
        read(0, KEY, 100, 600),
        write(3, KEY, 0, &[1]),
        add(4, KEY, 8, 1),
        write(5, KEY, 1, &[1]),
    ]);
    let opcodes: Vec<Opcode> = answers.iter().map(|sent| sent.opcode).collect();
    use Opcode::*;
    assert_eq!(
        opcodes,
        [
            ReadResponseFirst,
            ReadResponseMiddle,
            ReadResponseLast,
            AtomicAcknowledge,
            Acknowledge
        ]
    );
    let indices: Vec<u32> = answers
        .iter()
        .map(|sent| Psn::new(sent.psn).since(Psn::new(FIRST)))
        .collect();
    assert_eq!(indices, [0, 1, 2, 4, 5]);
    let data: Vec<u8> = answers[..3]
        .iter()
        .flat_map(|sent| sent.payload.clone())
        .collect();
    assert_eq!(data, bench.exposed.bytes[100..700]);
    assert_eq!(said(&answers[4]), (5, ACK, 4));
}

/// Spec: ROCE-112, ROCE-123, ROCE-125
#[test]
fn a_key_that_goes_away_stops_reads_and_writes_at_once() {
    let mut bench = Bench::usual();
    let done = bench.responder.receive(
        &read(0, KEY, 0, 600).packet(),
        &mut bench.exposed,
        &mut bench.receives,
    );
    assert_eq!(done, None);
    assert_eq!(
        bench.transmit().map(|sent| sent.opcode),
        Some(Opcode::ReadResponseFirst)
    );
    bench.exposed.grants.clear();
    assert_eq!(only(&bench.drain()), (1, ACCESS, 1));
    assert_eq!(bench.responder.fault(), Some(NakCode::RemoteAccess));

    let mut bench = Bench::usual();
    bench.receive(&[Made::new(Opcode::WriteFirst, psn(0), &[0xEE; 256]).reth(KEY, BASE, 512)]);
    bench.exposed.grants.clear();
    let bench = refused(
        bench,
        &[Made::new(Opcode::WriteLast, psn(1), &[0xEE; 256])],
        1,
        ACCESS,
    );
    assert_eq!(
        (bench.exposed.bytes[255], bench.exposed.bytes[256]),
        (0xEE, 0)
    );

    // A repeated Read looks its key up again, too: here one whose responses were not all sent.
    let mut bench = Bench::usual();
    let whole = read(0, KEY, 0, 600);
    for _ in 0..2 {
        bench
            .responder
            .receive(&whole.packet(), &mut bench.exposed, &mut bench.receives);
        bench.transmit().expect("the first response");
    }
    bench.exposed.grants.clear();
    assert_eq!(only(&bench.drain()), (1, ACCESS, 1));
}

/// A late repetition of a Read that was answered says nothing about the memory, which the peer may
/// have freed since the Read completed.
///
/// Spec: ROCE-121, ROCE-125
#[test]
fn a_late_repetition_of_a_read_breaks_nothing() {
    let mut bench = Bench::usual();
    bench.receive(&[read(0, KEY, 0, 600)]);
    let grants = std::mem::take(&mut bench.exposed.grants);
    assert_eq!(bench.receive(&[read(0, KEY, 0, 600)]), []);
    assert_eq!(bench.receive(&[read(1, KEY, 256, 344)]), []);
    assert_eq!(bench.responder.fault(), None);
    // The acknowledgements of later requests leave in spite of it.
    bench.exposed.grants = grants;
    assert_eq!(only(&bench.receive(&[write(3, KEY, 0, &[1])])), (3, ACK, 2));
    assert_eq!(bench.receive(&[read(0, KEY, 0, 600)]).len(), 3);
}

/// Spec: ROCE-114..116
#[test]
fn reads_and_atomics_have_resources_and_alignment() {
    refused(Bench::new(OPTIONS, 0), &[read(0, KEY, 0, 8)], 0, INVALID);
    refused(Bench::new(OPTIONS, 0), &[add(0, KEY, 0, 8)], 0, INVALID);
    refused(Bench::usual(), &[add(0, KEY, 4, 8)], 0, INVALID);
    let three = [read(0, KEY, 0, 8), add(1, KEY, 8, 1), read(2, KEY, 0, 8)];
    let bench = refused(Bench::usual(), &three, 2, INVALID);
    assert_eq!(bench.exposed.refused, 0);
    let mut bench = Bench::usual();
    assert_eq!(bench.receive(&three[..2]).len(), 2);
    assert_eq!(bench.receive(&three[2..]).len(), 1);

    let mut bench = Bench::usual();
    let place = |bench: &Bench| u64::from_ne_bytes(bench.exposed.bytes[8..16].try_into().unwrap());
    let before = place(&bench);
    let answers = bench.receive(&[add(0, KEY, 8, u64::MAX)]);
    assert_eq!(
        (answers[0].extensions.original, place(&bench)),
        (Some(before), before.wrapping_sub(1))
    );
    let swap = |index, compare| {
        let operation = AtomicOperation::CompareSwap { compare, swap: 5 };
        Made::new(Opcode::CompareSwap, psn(index), &[]).atomic(KEY, BASE + 8, operation)
    };
    let answers = bench.receive(&[swap(1, 0)]);
    assert_eq!(
        (answers[0].extensions.original, place(&bench)),
        (Some(before - 1), before - 1)
    );
    let answers = bench.receive(&[swap(2, before - 1)]);
    assert_eq!(
        (answers[0].extensions.original, place(&bench)),
        (Some(before - 1), 5)
    );
}

/// Spec: ROCE-121..122
#[test]
fn repeated_reads_and_atomics_are_answered_from_what_is_remembered() {
    let mut bench = Bench::usual();
    assert_eq!(
        bench
            .receive(&[read(0, KEY, 0, 600), add(3, KEY, 1024, 1)])
            .len(),
        4
    );
    let value = bench.exposed.bytes[1024..1032].to_vec();
    // From the middle on: a shorter run with opcodes of its own, from memory as it is now.
    bench.exposed.bytes[300] = 0xEE;
    let answers = bench.receive(&[read(1, KEY, 256, 344)]);
    let opcodes: Vec<Opcode> = answers.iter().map(|sent| sent.opcode).collect();
    assert_eq!(
        opcodes,
        [Opcode::ReadResponseFirst, Opcode::ReadResponseLast]
    );
    assert_eq!((answers[0].psn, answers[0].payload[44]), (psn(1), 0xEE));
    // A consecutive part.
    assert_eq!(bench.receive(&[read(0, KEY, 0, 512)]).len(), 2);
    let answers = bench.receive(&[add(3, KEY, 1024, 1)]);
    let original = u64::from_ne_bytes((0..8).collect::<Vec<u8>>().try_into().unwrap());
    assert_eq!(answers[0].extensions.original, Some(original));
    assert_eq!(bench.exposed.bytes[1024..1032], value, "not executed again");
    // Not what was remembered: another key, address, length or PSN.
    for other in [
        read(1, NARROW, 256, 344),
        read(1, KEY, 0, 344),
        read(1, KEY, 256, 345),
        read(1, KEY, 256, 100),
        read(1, KEY, 256, 1000),
        read(3, KEY, 0, 8),
        add(2, KEY, 1024, 1),
    ] {
        assert_eq!(bench.receive(std::slice::from_ref(&other)), [], "{other:?}");
    }
    // Forgotten after as many more as there are resources.
    bench.receive(&[read(4, KEY, 0, 8)]);
    bench.receive(&[read(5, KEY, 0, 8)]);
    assert_eq!(bench.receive(&[read(0, KEY, 0, 600)]), []);
    assert_eq!(bench.receive(&[add(3, KEY, 1024, 1)]), []);
}

/// A Read that is repeated while its responses are being sent begins with a first response.
///
/// Spec: ROCE-121
#[test]
fn repetition_during_the_responses_begins_anew() {
    let mut bench = Bench::usual();
    let whole = read(0, KEY, 0, 1024);
    bench
        .responder
        .receive(&whole.packet(), &mut bench.exposed, &mut bench.receives);
    for _ in 0..3 {
        bench.transmit().expect("a response");
    }
    let sent = bench.receive(&[read(1, KEY, 256, 768)]);
    let opcodes: Vec<_> = sent.iter().map(|sent| (sent.opcode, sent.psn)).collect();
    let expected = [
        (Opcode::ReadResponseFirst, psn(1)),
        (Opcode::ReadResponseMiddle, psn(2)),
        (Opcode::ReadResponseLast, psn(3)),
    ];
    assert_eq!(opcodes, expected);
}

/// A repetition of responses that are still to be sent changes nothing.
///
/// Spec: ROCE-121
#[test]
fn repetition_of_responses_to_come_is_included() {
    let mut bench = Bench::usual();
    let whole = read(0, KEY, 0, 1024);
    bench
        .responder
        .receive(&whole.packet(), &mut bench.exposed, &mut bench.receives);
    bench.transmit().expect("a response");
    let sent = bench.receive(&[read(2, KEY, 512, 512)]);
    let psns: Vec<_> = sent.iter().map(|sent| sent.psn).collect();
    assert_eq!(psns, [1, 2, 3].map(psn));
}
