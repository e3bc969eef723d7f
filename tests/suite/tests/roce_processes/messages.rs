//! Sends and Receives between processes.

use dat_core::event::{
    AsyncEventKind, ConnectionEventKind, DtoOperation, Event, REASON_SOFT_HIGH_WATERMARK,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, WATERMARK_INFINITE};
use dat_core::memory::LmrTriplet;
use dat_tests::fixture::{Memory, equal, granted};

use crate::runner::two_sides;
use crate::side::{Party, Side};

/// Bytes of the memory of a large message, which needs many packets.
const LARGE: u64 = 200_000;

/// The segments of a message and of its receive: offsets and lengths.
type Shape = (&'static [(u64, u64)], &'static [(u64, u64)]);

/// Messages without bytes, in one segment and in several, and longer than a packet.
const SHAPES: [Shape; 7] = [
    (&[], &[]),
    (&[], &[(0, 100)]),
    (&[(7, 1)], &[(3, 1)]),
    (&[(0, 100)], &[(900, 60), (100, 0), (500, 60)]),
    (&[(40, 10), (0, 0), (0, 30), (300, 1)], &[(1, 41)]),
    (&[(0, LARGE)], &[(0, LARGE)]),
    (
        &[(10, 50_000), (60_001, 100_000)],
        &[(100_000, 70_003), (5, 90_000)],
    ),
];

/// Returns the bytes of some segments, in list order.
fn gather(content: &[u8], segments: &[(u64, u64)]) -> Vec<u8> {
    let part = |&(offset, length): &(u64, u64)| &content[offset as usize..][..length as usize];
    segments.iter().flat_map(part).copied().collect()
}

/// Places bytes into segments, in list order.
fn scatter(content: &mut [u8], segments: &[(u64, u64)], mut bytes: &[u8]) {
    for &(offset, length) in segments {
        let (head, rest) = bytes.split_at(bytes.len().min(length as usize));
        content[offset as usize..][..head.len()].copy_from_slice(head);
        bytes = rest;
    }
}

/// Returns the segments of a shape in some memory.
fn segments(memory: &Memory, shape: &[(u64, u64)]) -> Vec<LmrTriplet> {
    let segment = |&(offset, length): &(u64, u64)| memory.segment(offset, length);
    shape.iter().map(segment).collect()
}

/// Sends all shapes to the other side and receives all of its shapes; both sides do this.
///
/// The patterns of the sides differ, and each side knows both.
fn exchange(side: &Side, party: &Party) {
    let memory = || party.more_memory(LARGE as usize, MemoryPrivileges::ALL);
    let (theirs, outgoing, incoming) = (memory(), memory(), memory());
    theirs.fill(side.other() as u8);
    outgoing.fill(side.number as u8);
    let ours = outgoing.content();
    let blank = vec![0; LARGE as usize];
    for (index, (sent, received)) in SHAPES.into_iter().enumerate() {
        let cookie = index as u64;
        incoming.store(0, &blank);
        party.receive_into(&segments(&incoming, received), cookie);
        side.meet(&format!("receive {index}"));
        party.send_from(&segments(&outgoing, sent), cookie);
        let message = gather(&theirs.content(), sent);
        let done = side.net.success(party, cookie);
        let expected = (party.ep, DtoOperation::Send, message.len() as u64);
        assert_eq!((done.ep, done.operation, done.transferred_length), expected);
        let done = side.net.receive_ends(party, cookie, DtoStatus::Success);
        let expected = (party.ep, DtoOperation::Receive, message.len() as u64);
        assert_eq!((done.ep, done.operation, done.transferred_length), expected);
        let mut expected = blank.clone();
        scatter(&mut expected, received, &message);
        equal("the receive", &incoming.content(), &expected);
    }
    side.meet("all messages");
    equal("what was sent", &outgoing.content(), &ours);
    side.net.quiet(party);
}

/// Messages of every shape arrive whole, in both directions at the same time.
///
/// Spec: EPS-01, EPS-02, EPV-01, EPV-02, EPV-03, DTO-01, DTO-03, DTO-06
#[test]
fn messages_of_every_shape_arrive() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            exchange(near, &party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            exchange(far, &party);
        },
    );
}

/// Messages arrive in the order in which they were sent.
///
/// Spec: DTO-11, EPV-03, ROCE-85
#[test]
fn messages_keep_their_order() {
    const COUNT: u64 = 16;
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for round in 0..8 {
                near.hear("receives");
                for cookie in 0..COUNT {
                    let number = round * COUNT + cookie;
                    party
                        .memory
                        .store(8 * cookie as usize, &number.to_be_bytes());
                    party.send_from(&[party.memory.segment(8 * cookie, 8)], number);
                }
                for cookie in 0..COUNT {
                    near.net.success(&party, round * COUNT + cookie);
                }
            }
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            for round in 0..8 {
                for cookie in 0..COUNT {
                    party.receive_into(&[party.memory.segment(8 * cookie, 8)], cookie);
                }
                far.tell("receives", &[]);
                for cookie in 0..COUNT {
                    far.net.receive_ends(&party, cookie, DtoStatus::Success);
                    let number = round * COUNT + cookie;
                    let found = party.memory.load(8 * cookie as usize, 8);
                    equal("the message", &found, &number.to_be_bytes());
                }
            }
        },
    );
}

/// A message longer than its receive fails on both sides and breaks the connection.
///
/// No byte behind the receive changes; receives and requests behind are flushed.
///
/// Spec: EPS-04, EPV-04, EPV-06, DTO-12, E22
#[test]
fn message_longer_than_its_receive_breaks() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            party.receive_into(&[], 8);
            near.hear("receives");
            party.send_from(&[party.memory.segment(0, 17)], 3);
            party.send_from(&[], 4);
            near.net.request_ends(&party, 3, DtoStatus::RemoteResponder);
            near.net.request_ends(&party, 4, DtoStatus::Flushed);
            near.net.receive_ends(&party, 8, DtoStatus::Flushed);
            near.broken(&party);
            near.meet("broken");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            party.memory.fill(4);
            let behind = party.memory.load(16, 4080);
            party.receive_into(&[party.memory.segment(0, 16)], 1);
            party.receive_into(&[party.memory.segment(0, 64)], 2);
            far.tell("receives", &[]);
            far.net.receive_ends(&party, 1, DtoStatus::LocalLength);
            far.net.receive_ends(&party, 2, DtoStatus::Flushed);
            far.broken(&party);
            far.meet("broken");
            equal("bytes behind", &party.memory.load(16, 4080), &behind);
            far.net.quiet(&party);
        },
    );
}

/// A message without a receive fails at the sender and breaks the connection.
///
/// Spec: EPS-04, EPH-05, E22
#[test]
fn message_without_a_receive_breaks() {
    two_sides(
        |near| {
            let party = near.impatient_party();
            near.connect(&party);
            party.send_from(&[party.memory.segment(0, 8)], 1);
            near.net
                .request_ends(&party, 1, DtoStatus::ReceiverNotReady);
            near.broken(&party);
            near.meet("broken");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.impatient_party();
            far.accept(&party);
            far.broken(&party);
            far.meet("broken");
            far.net.quiet(&party);
        },
    );
}

/// The soft high watermark is reported once; the hard one ends the connection, at both sides.
///
/// Spec: EPH-01..04, E22
#[test]
fn high_watermarks_are_reported_and_end_the_connection() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for cookie in 0..3 {
                near.meet("a receive");
                party.send_from(&[party.memory.segment(0, 8)], cookie);
                near.net.success(&party, cookie);
            }
            near.meet("a receive above the hard watermark");
            party.send_from(&[party.memory.segment(0, 8)], 3);
            assert_eq!(near.net.connection(&party), ConnectionEventKind::Broken);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            let ia = &party.ia;
            granted(ia.ep_set_watermark(party.ep, 0, WATERMARK_INFINITE));
            for cookie in 0..3 {
                party.receive_into(&[party.memory.segment(0, 8)], cookie);
                far.meet("a receive");
                let done = far.net.receive_completion(&party);
                assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
            }
            let event = Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: party.ep.handle(),
                reason: REASON_SOFT_HIGH_WATERMARK,
            };
            assert_eq!(far.net.event(ia, ia.async_evd()), event);
            far.net.silent(ia, ia.async_evd());
            granted(ia.ep_set_watermark(party.ep, WATERMARK_INFINITE, 0));
            party.receive_into(&[party.memory.segment(0, 8)], 3);
            far.meet("a receive above the hard watermark");
            assert_eq!(far.net.connection(&party), ConnectionEventKind::Broken);
            far.net.silent(ia, ia.async_evd());
        },
    );
}
