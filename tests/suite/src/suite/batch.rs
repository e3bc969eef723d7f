//! Several posts of an endpoint with one doorbell: `Ia::post_batch`, `Ia::post_recv_batch`.

use dat_core::Subtype;
use dat_core::endpoint::{BatchOperation, BatchReceive, BatchRequest};
use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, DtoStatus, EpFields, MemoryPrivileges};
use dat_core::memory::LmrTriplet;
use dat_core::{Error, ErrorKind};

use crate::fixture::{Net, PartyOptions, Testbed, equal, granted, refused};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Posts of a batch complete in order, as if they were posted one by one.
///
/// Each completion has its own cookie, length and operation, and the data arrives. Receives of a
/// batch are taken in their order.
///
/// Spec: EPS-01, EPW-01, EPB-01, EPV-01, DTO-01, DTO-03, DTO-06
pub fn batch_does_what_its_posts_do<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let (near, far) = (left.memory.content(), right.memory.content());
    let into = [
        [
            right.memory.segment(1000, 10),
            right.memory.segment(1020, 10),
        ],
        [
            right.memory.segment(1040, 20),
            right.memory.segment(1060, 20),
        ],
    ];
    let receives = [0, 1].map(|number| BatchReceive {
        segments: &into[number],
        cookie: 70 + number as u64,
        flags: DEFAULT,
    });
    right.ia.post_recv_batch(right.ep, &receives).expect("all");
    let from = [
        vec![left.memory.segment(0, 8)],
        vec![left.memory.segment(100, 10), left.memory.segment(300, 3)],
        vec![left.memory.segment(2000, 16)],
        vec![left.memory.segment(500, 4), left.memory.segment(700, 8)],
    ];
    let operations = [
        BatchOperation::RdmaWrite(right.memory.remote(2000, 8)),
        BatchOperation::Send,
        BatchOperation::RdmaRead(right.memory.remote(3000, 16)),
        BatchOperation::Send,
    ];
    let requests: Vec<BatchRequest<'_>> = (0..4)
        .map(|number| BatchRequest {
            operation: operations[number],
            segments: &from[number],
            cookie: 40 + number as u64,
            flags: DEFAULT,
        })
        .collect();
    left.ia.post_batch(left.ep, &requests).expect("all");
    for (cookie, length, operation) in [
        (40, 8, DtoOperation::RdmaWrite),
        (41, 13, DtoOperation::Send),
        (42, 16, DtoOperation::RdmaRead),
        (43, 12, DtoOperation::Send),
    ] {
        let done = net.success(&left, cookie);
        assert_eq!(
            (done.transferred_length, done.operation),
            (length, operation)
        );
    }
    for (cookie, length) in [(70, 13), (71, 12)] {
        let done = net.receive_ends(&right, cookie, DtoStatus::Success);
        assert_eq!(done.transferred_length, length);
    }
    let mut expected = far.clone();
    expected[2000..2008].copy_from_slice(&near[0..8]);
    expected[1000..1010].copy_from_slice(&near[100..110]);
    expected[1020..1023].copy_from_slice(&near[300..303]);
    expected[1040..1044].copy_from_slice(&near[500..504]);
    expected[1044..1052].copy_from_slice(&near[700..708]);
    equal("the peer's memory", &right.memory.content(), &expected);
    let mut expected = near;
    expected[2000..2016].copy_from_slice(&far[3000..3016]);
    equal("the local memory", &left.memory.content(), &expected);
    net.quiet(&left);
    net.quiet(&right);
}

/// The first refused post of a batch ends it.
///
/// The posts before it take effect; it and the posts after it have none.
///
/// Spec: DTO-07, GEN-06
pub fn batch_ends_at_the_first_refused_post<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    right.memory.fill(2);
    let lacking = left.more_memory(64, MemoryPrivileges::LOCAL_WRITE);
    let good = [left.memory.segment(0, 8)];
    let bad: [(LmrTriplet, Error); 3] = [
        (
            left.memory.segment(left.memory.len() as u64, 1),
            Error::invalid_argument(3),
        ),
        (
            lacking.segment(0, 8),
            Error::privileges_violation(Subtype::PrivilegesRead),
        ),
        (left.memory.segment(0, 9), Error::length()),
    ];
    for (number, (bad, error)) in bad.iter().enumerate() {
        for index in 0..4 {
            left.memory.fill((10 * number + index) as u8);
            let source = left.memory.content();
            let mut expected = right.memory.content();
            let bad = [*bad];
            let requests: Vec<BatchRequest<'_>> = (0..4)
                .map(|post| BatchRequest {
                    operation: BatchOperation::RdmaWrite(right.memory.remote(8 * post, 8)),
                    segments: if post == index as u64 { &bad } else { &good },
                    cookie: post,
                    flags: DEFAULT,
                })
                .collect();
            let outcome = left.ia.post_batch(left.ep, &requests);
            let ended = outcome.expect_err("one is not allowed");
            assert_eq!(ended.posted, index);
            refused::<()>(Err(ended.error), *error);
            for cookie in 0..index as u64 {
                net.success(&left, cookie);
            }
            for post in 0..index {
                expected[8 * post..8 * post + 8].copy_from_slice(&source[0..8]);
            }
            net.quiet(&left);
            equal("the peer's memory", &right.memory.content(), &expected);
        }
    }
    net.check_transfer(&left, &right);
}

/// A batch with too many receives posts those that have room and refuses the next.
///
/// All messages for the posted receives arrive.
///
/// Spec: EPV-01, DTO-07
pub fn batch_of_receives_fills_the_queue<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| attributes.max_recv_dtos = 3);
    let (left, right) = net.pair(&options);
    let made = granted(right.ia.ep_query(right.ep, EpFields::all())).attributes;
    let room = usize::try_from(made.max_recv_dtos).expect("a count");
    let segments: Vec<[LmrTriplet; 1]> = (0..=room as u64)
        .map(|number| [right.memory.segment(8 * number, 8)])
        .collect();
    let receives: Vec<BatchReceive<'_>> = segments
        .iter()
        .zip(0..)
        .map(|(segments, cookie)| BatchReceive {
            segments,
            cookie,
            flags: DEFAULT,
        })
        .collect();
    let outcome = right.ia.post_recv_batch(right.ep, &receives);
    let ended = outcome.expect_err("one has no room");
    assert_eq!(ended.posted, room);
    assert_eq!(ended.error.kind(), ErrorKind::InsufficientResources);
    for number in 0..room as u64 {
        left.send_from(&[left.memory.segment(number, 8)], number);
        net.success(&left, number);
        assert_eq!(net.receive_completion(&right).cookie, number);
    }
    net.quiet(&right);
}

/// Posts of a batch on an endpoint without a connection complete flushed, in their order.
///
/// Spec: DTO-10, EPS-01, EPV-01
pub fn batch_is_flushed_where_nobody_is_connected<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    net.disconnect(&left, &right);
    let segments = [left.memory.segment(0, 8)];
    let requests: Vec<BatchRequest<'_>> = (0..5)
        .map(|cookie| BatchRequest {
            operation: BatchOperation::Send,
            segments: &segments,
            cookie,
            flags: DEFAULT,
        })
        .collect();
    let receives: Vec<BatchReceive<'_>> = (0..5)
        .map(|cookie| BatchReceive {
            segments: &segments,
            cookie,
            flags: DEFAULT,
        })
        .collect();
    left.ia.post_batch(left.ep, &requests).expect("all");
    left.ia.post_recv_batch(left.ep, &receives).expect("all");
    for cookie in 0..5 {
        for done in [net.request_completion(&left), net.receive_completion(&left)] {
            assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Flushed));
        }
    }
    net.quiet(&left);
}
