//! The responder alone: what it executes, what it refuses and what it answers.

mod common;

use backend_roce::proto::memory::AtomicOperation;
use backend_roce::proto::packet::{NakCode, Opcode, RnrTimer, Syndrome};
use backend_roce::proto::responder::{
    ReceiveCompletion, ReceiveStatus, ResourceSlot, Responder, ResponderOptions,
};
use backend_roce::proto::{PathMtu, Psn};
use common::memory::{BASE, Exposed, Grant, Receives};
use common::packets::{Made, Sent, sent};
use fastrand::Rng;

const FIRST: u32 = 0xFF_FFFE;
const KEY: u32 = 0x5EC2_E700;
/// A window that covers a part of the region of `KEY`.
const NARROW: u32 = 0x5EC2_E701;
const READ_ONLY: u32 = 0x5EC2_E702;
const SIZE: usize = 4096;
/// The part of the memory that `NARROW` opens.
const OPEN: std::ops::Range<usize> = 1000..1400;

const OPTIONS: ResponderOptions = ResponderOptions {
    destination: 0x12,
    first: Psn::new(FIRST),
    mtu: PathMtu::Bytes256,
    remote_read: true,
    remote_write: true,
    remote_atomic: true,
    rnr_timer: RnrTimer::from_code(12),
};

const INVALID: Syndrome = Syndrome::Negative(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::Negative(NakCode::RemoteAccess);
const ACK: Syndrome = Syndrome::Acknowledgement;

struct Bench {
    responder: Responder<'static>,
    exposed: Exposed,
    receives: Receives,
    done: Vec<ReceiveCompletion>,
}

impl Bench {
    fn new(options: ResponderOptions, resources: usize) -> Self {
        let slots = Box::leak(vec![ResourceSlot::EMPTY; resources].into_boxed_slice());
        let grant = |key, range: std::ops::Range<usize>| Grant {
            key,
            address: BASE + range.start as u64,
            length: range.len() as u64,
            read: true,
            write: key != READ_ONLY,
            atomic: key == KEY,
        };
        let exposed = Exposed {
            bytes: (0..SIZE).map(|index| index as u8).collect(),
            grants: vec![
                grant(KEY, 0..SIZE),
                grant(NARROW, OPEN),
                grant(READ_ONLY, 0..SIZE),
            ],
            refused: 0,
        };
        Self {
            responder: Responder::new(options, slots),
            exposed,
            receives: Receives::default(),
            done: Vec::new(),
        }
    }

    fn usual() -> Self {
        Self::new(OPTIONS, 2)
    }

    /// Gives packets to the responder, then takes everything that it sends.
    fn receive(&mut self, packets: &[Made]) -> Vec<Sent> {
        for made in packets {
            let done =
                self.responder
                    .receive(&made.packet(), &mut self.exposed, &mut self.receives);
            self.done.extend(done);
        }
        self.drain()
    }

    fn transmit(&mut self) -> Option<Sent> {
        let mut buffer = [0; 512];
        let length = self.responder.transmit(&mut self.exposed, &mut buffer)?;
        Some(sent(&buffer[..length]))
    }

    fn drain(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.transmit()).collect()
    }

    fn unchanged(&self) -> bool {
        self.exposed
            .bytes
            .iter()
            .enumerate()
            .all(|(index, byte)| *byte == index as u8)
    }
}

/// PSN number `index` of the requests, from the expected one on.
fn psn(index: u32) -> u32 {
    Psn::new(FIRST).plus(index).value()
}

fn send(index: u32, payload: &[u8]) -> Made {
    Made::new(Opcode::SendOnly, psn(index), payload).asking()
}

fn write(index: u32, key: u32, at: usize, payload: &[u8]) -> Made {
    let made = Made::new(Opcode::WriteOnly, psn(index), payload).asking();
    made.reth(key, BASE.wrapping_add(at as u64), payload.len() as u32)
}

fn read(index: u32, key: u32, at: usize, length: u32) -> Made {
    Made::new(Opcode::ReadRequest, psn(index), &[])
        .asking()
        .reth(key, BASE + at as u64, length)
}

fn add(index: u32, key: u32, at: usize, operand: u64) -> Made {
    let made = Made::new(Opcode::FetchAdd, psn(index), &[]).asking();
    made.atomic(key, BASE + at as u64, AtomicOperation::FetchAdd(operand))
}

/// Index, syndrome and MSN of an acknowledgement.
fn said(sent: &Sent) -> (u32, Syndrome, u32) {
    let aeth = sent.extensions.aeth.expect("AETH");
    (
        Psn::new(sent.psn).since(Psn::new(FIRST)),
        aeth.syndrome,
        aeth.msn,
    )
}

fn only(packets: &[Sent]) -> (u32, Syndrome, u32) {
    assert_eq!(
        (packets.len(), packets[0].opcode),
        (1, Opcode::Acknowledge),
        "{packets:?}"
    );
    said(&packets[0])
}

/// Checks that `packets` are refused: the NAK for PSN `index`, and silence afterwards.
fn refused(mut bench: Bench, packets: &[Made], index: u32, syndrome: Syndrome) -> Bench {
    let answers = bench.receive(packets);
    let last = answers.last().expect("a NAK");
    let (psn, said, _) = said(last);
    assert_eq!((psn, said), (index, syndrome), "{packets:?}");
    assert!(bench.responder.fault().is_some());
    let executed = bench.responder.counts().executed;
    bench.receives.post(99, 4096);
    assert_eq!(
        bench.receive(&[
            write(index, KEY, 0, &[1]),
            send(index + 1, &[1]),
            read(0, KEY, 0, 8)
        ]),
        []
    );
    assert_eq!(bench.responder.counts().executed, executed);
    bench
}

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
        (Made::new(Opcode::SendOnlyInvalidate, psn(0), &[]), OPTIONS),
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
        immediate: Some([1, 2, 3, 4]),
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
