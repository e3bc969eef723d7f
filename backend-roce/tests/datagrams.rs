//! Queue pairs for datagrams: two devices, a wire and virtual time.

#![cfg(feature = "std")]

mod common;

use std::net::SocketAddr;

use backend_roce::{Operation, PairOptions, Post, PostError, Receiver};
use common::verbs::{Bed, SENDS, Side, post, receives};
use dat_core::backend::{BackendError, Segment};
use dat_core::flags::DtoStatus;

/// Makes a queue pair for datagrams ready.
fn make_ready_side(side: &Side, qpn: u32, key: u32) {
    assert_eq!(side.device.send_datagrams(qpn), Err(BackendError::State));
    assert_eq!(side.device.receive_datagrams(qpn, key), Ok(()));
    let again = side.device.receive_datagrams(qpn, key);
    assert_eq!(again, Err(BackendError::State));
    assert_eq!(side.device.send_datagrams(qpn), Ok(()));
}

/// Makes the queue pairs of both sides ready; their keys are 7 and 8.
fn make_ready(bed: &Bed) {
    for (side, (qpn, key)) in bed.sides.iter().zip(bed.qpns.into_iter().zip([7, 8])) {
        make_ready_side(side, qpn, key);
    }
}

/// Two sides with a queue pair for datagrams each.
fn datagram_bed() -> Bed {
    let bed = Bed::unattached();
    make_ready(&bed);
    bed
}

/// Returns a datagram of the first side to the second one.
fn datagram<'a>(bed: &Bed, key: u32, segments: &'a [Segment]) -> Post<'a> {
    Post {
        receiver: Some(Receiver {
            local: bed.sides[0].address,
            peer: SocketAddr::new(bed.sides[1].address, 0),
            qpn: bed.qpns[1],
            key,
        }),
        ..post(5, Operation::Send(Some(9)), segments)
    }
}

/// Spec: ROCE-270, ROCE-271
#[test]
fn a_datagram_arrives_behind_its_network_header() {
    let mut bed = datagram_bed();
    let (qpns, [one, two]) = (bed.qpns, &bed.sides);
    one.fill(0, b"a datagram");
    two.receive(qpns[1], 1, 0, 64);
    let segments = [one.segment(0, 10)];
    assert_eq!(one.post(qpns[0], &datagram(&bed, 8, &segments)), Ok(()));
    let sent = bed.completions(0, 1)[0];
    assert_eq!((sent.token, sent.status), (5, DtoStatus::Success));
    let came = bed.completions(1, 1)[0];
    let told = (came.token, came.length, came.immediate, came.source);
    assert_eq!(told, (1, 50, Some(9), Some(qpns[0])));
    let two = &bed.sides[1];
    assert_eq!(two.read(0, 20), [0; 20]);
    let header = two.read(20, 20);
    // UDP and the RDMA headers, the pad, and the ICRC.
    assert_eq!(header[..4], [0x45, 0, 0, 28 + 12 + 8 + 4 + 12 + 4]);
    assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
    let words = header.chunks(2);
    let sum: u32 = words
        .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]))
        .sum();
    assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "the checksum");
    assert_eq!(two.read(40, 10), b"a datagram");
}

/// Spec: ROCE-270, ROCE-271
#[test]
fn a_datagram_needs_the_key_and_a_receive() {
    let mut bed = datagram_bed();
    let qpns = bed.qpns;
    let segments = [bed.sides[0].segment(0, 30)];
    let send = |bed: &mut Bed, key| {
        let datagram = datagram(bed, key, &segments);
        assert_eq!(bed.sides[0].post(qpns[0], &datagram), Ok(()));
        assert_eq!(bed.completions(0, 1)[0].status, DtoStatus::Success);
        bed.step();
        bed.sides[1].device.counts().dropped
    };
    assert_eq!(send(&mut bed, 8), 1, "no receive");
    bed.sides[1].receive(qpns[1], 1, 0, 64);
    assert_eq!(send(&mut bed, 7), 2, "another key");
    assert_eq!(send(&mut bed, 8), 2);
    let came = bed.completions(1, 1)[0];
    assert_eq!(came.status, DtoStatus::LocalLength, "70 bytes");
    // The receiver goes on, with another key: that of the sender.
    assert_eq!(bed.sides[1].device.set_datagram_key(qpns[1], 7), Ok(()));
    bed.sides[1].receive(qpns[1], 2, 0, 70);
    assert_eq!(send(&mut bed, 1 << 31), 2);
    assert_eq!(bed.completions(1, 1)[0].status, DtoStatus::Success);
}

/// Receives of a shared queue are left to queue pairs that work.
///
/// Spec: ROCE-270
#[test]
fn a_failed_queue_pair_takes_no_datagram() {
    let mut bed = Bed::unattached();
    let two = &bed.sides[1];
    let shared = two.device.create_shared_queue(9, two.domain, 4);
    let shared = shared.expect("a queue");
    let options = PairOptions {
        shared: Some(shared),
        ..two.options()
    };
    bed.qpns[1] = two.device.create_pair(&options).expect("a pair");
    let segments = [two.segment(0, 64)];
    let posted = two.device.post_shared(shared, 1, &segments);
    assert_eq!(posted, Ok(()));
    make_ready(&bed);
    let segments = [bed.sides[0].segment(0, 8)];
    for (is_failed, dropped) in [(true, 1), (false, 1)] {
        if is_failed {
            assert_eq!(bed.sides[1].device.fail_pair(bed.qpns[1]), Ok(()));
        }
        let datagram = datagram(&bed, 8, &segments);
        assert_eq!(bed.sides[0].post(bed.qpns[0], &datagram), Ok(()));
        assert_eq!(bed.completions(0, 1)[0].status, DtoStatus::Success);
        bed.step();
        let two = &bed.sides[1];
        assert_eq!(two.device.counts().dropped, dropped, "{is_failed}");
        if is_failed {
            assert_eq!(two.take().len(), 0);
            assert_eq!(two.device.reset_pair(bed.qpns[1]), Ok(()));
            make_ready_side(two, bed.qpns[1], 8);
        }
    }
    assert_eq!(bed.completions(1, 1)[0].status, DtoStatus::Success);
}

/// Spec: ROCE-270
#[test]
fn what_is_no_datagram_is_refused() {
    let bed = datagram_bed();
    let (qpn, [one, two]) = (bed.qpns[0], &bed.sides);
    let segments = [one.segment(0, 4097)];
    let refused = Err(PostError::Invalid);
    assert_eq!(one.post(qpn, &datagram(&bed, 8, &segments)), refused);
    let short = [one.segment(0, 8)];
    assert_eq!(
        one.post(qpn, &post(1, Operation::Send(None), &short)),
        refused
    );
    let write = Post {
        operation: Operation::Write(two.remote(0), None),
        ..datagram(&bed, 8, &short)
    };
    assert_eq!(one.post(qpn, &write), refused);
    assert_eq!(
        one.device.ready_to_send(qpn, &SENDS),
        Err(BackendError::State)
    );
    // A failed one flushes, and one that is reset is new.
    assert_eq!(one.device.fail_pair(qpn), Ok(()));
    assert_eq!(one.post(qpn, &datagram(&bed, 8, &short)), Ok(()));
    assert_eq!(one.take()[0].status, DtoStatus::Flushed);
    assert_eq!(one.device.reset_pair(qpn), Ok(()));
    let with = receives(two, bed.qpns[1], one.address);
    assert_eq!(one.device.ready_to_receive(qpn, &with), Ok(()));
    let reliable = Bed::new();
    let datagram = datagram(&reliable, 8, &short);
    assert_eq!(reliable.sides[0].post(reliable.qpns[0], &datagram), refused);
}
