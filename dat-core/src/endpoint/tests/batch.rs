//! Batches: one doorbell each, and refusals within a batch.

use core::error::Error as _;
use std::string::ToString;
use std::vec::Vec;

use crate::backend::BackendError;
use crate::endpoint::{BatchOperation, BatchReceive, BatchRequest};
use crate::error::{Cause, ErrorKind};
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use crate::id::EpId;
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::TestStorage;
use crate::testing::fixture::Bench;

const NONE: CompletionFlags = CompletionFlags::empty();
const REMOTE: RmrTriplet = RmrTriplet {
    context: 1,
    address: 0,
    length: 8,
};
const OPERATIONS: [BatchOperation; 3] = [
    BatchOperation::Send,
    BatchOperation::RdmaWrite(REMOTE),
    BatchOperation::RdmaRead(REMOTE),
];

/// Returns a segment that any post accepts.
fn segment(bench: &Bench<'_>) -> LmrTriplet {
    let lmr = bench
        .ia
        .lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
            pz: bench.pz,
            privileges: MemoryPrivileges::ALL,
        })
        .unwrap();
    LmrTriplet {
        context: lmr.lmr_context,
        address: 0x1000,
        length: 8,
    }
}

/// Returns one request per cookie, cycling through the operations.
fn requests<'a>(
    segments: &'a [LmrTriplet],
    cookies: core::ops::Range<u64>,
) -> Vec<BatchRequest<'a>> {
    cookies
        .zip(OPERATIONS.into_iter().cycle())
        .map(|(cookie, operation)| BatchRequest {
            operation,
            segments,
            cookie,
            flags: NONE,
        })
        .collect()
}

fn receives<'a>(
    segments: &'a [LmrTriplet],
    cookies: core::ops::Range<u64>,
) -> Vec<BatchReceive<'a>> {
    cookies
        .map(|cookie| BatchReceive {
            segments,
            cookie,
            flags: NONE,
        })
        .collect()
}

/// Completes all posted work; returns the cookies in order.
fn completed(bench: &Bench<'_>, ep: EpId) -> Vec<u64> {
    let pair = bench.pair(ep);
    let device = &bench.device;
    while device.complete_request(pair, DtoStatus::Success)
        || device.complete_receive(pair, DtoStatus::Success, 0, false)
    {}
    core::iter::from_fn(|| match bench.ia.evd_dequeue(bench.data) {
        Ok(Event::Dto(completion)) => Some(completion.cookie),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    })
    .collect()
}

/// Spec: DTO-07
#[test]
fn a_batch_rings_once() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let one = [segment(&bench)];
    // The most segments that a request may have, one of them empty.
    let two = [
        one[0],
        LmrTriplet {
            length: 0,
            ..one[0]
        },
    ];
    for segments in [&one[..], &two[..]] {
        for count in 1..=4 {
            bench.device.take_doorbells();
            bench
                .ia
                .post_batch(ep, &requests(segments, 0..count))
                .unwrap();
            assert_eq!(bench.device.take_doorbells(), 1);
            assert_eq!(completed(&bench, ep), (0..count).collect::<Vec<_>>());
            bench
                .ia
                .post_recv_batch(ep, &receives(segments, 0..count))
                .unwrap();
            assert_eq!(bench.device.take_doorbells(), 1);
            assert_eq!(completed(&bench, ep), (0..count).collect::<Vec<_>>());
        }
    }
    bench.ia.post_batch(ep, &[]).unwrap();
    bench.ia.post_recv_batch(ep, &[]).unwrap();
    assert_eq!(bench.device.take_doorbells(), 0);
}

/// Spec: DTO-07
#[test]
fn a_batch_ends_at_the_first_post_that_is_not_allowed() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let good = [segment(&bench)];
    let bad = [LmrTriplet {
        length: 65,
        ..good[0]
    }];
    for place in 0..4 {
        let mut batch = requests(&good, 0..4);
        batch[place].segments = &bad;
        // A later bad request is not checked.
        batch[3].segments = &bad;
        let alone = match batch[place].operation {
            BatchOperation::Send => bench.ia.post_send(ep, &bad, 9, NONE),
            BatchOperation::RdmaWrite(to) => bench.ia.post_rdma_write(ep, &bad, 9, &to, NONE),
            BatchOperation::RdmaRead(of) => bench.ia.post_rdma_read(ep, &bad, 9, &of, NONE),
        };
        bench.device.take_doorbells();
        let refused = bench.ia.post_batch(ep, &batch).unwrap_err();
        assert_eq!((refused.posted, Err(refused.error)), (place, alone));
        assert!(refused.to_string().contains(&refused.error.to_string()));
        let source = refused.source().map(ToString::to_string);
        assert_eq!(source, Some(refused.error.to_string()));
        assert_eq!(bench.device.take_doorbells(), usize::from(place != 0));
        assert_eq!(completed(&bench, ep), (0..place as u64).collect::<Vec<_>>());

        let mut batch = receives(&good, 0..4);
        batch[place].segments = &bad;
        let alone = bench.ia.post_recv(ep, &bad, 9, NONE);
        let refused = bench.ia.post_recv_batch(ep, &batch).unwrap_err();
        assert_eq!((refused.posted, Err(refused.error)), (place, alone));
        assert_eq!(completed(&bench, ep), (0..place as u64).collect::<Vec<_>>());
    }
}

/// Spec: DTO-07
#[test]
fn a_batch_that_is_longer_than_the_queue_fills_it() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let segments = [segment(&bench)];
    let refused = bench
        .ia
        .post_batch(ep, &requests(&segments, 0..6))
        .unwrap_err();
    assert_eq!(
        (refused.posted, refused.error.cause()),
        (4, Cause::QueueFull)
    );
    let refused = bench
        .ia
        .post_recv_batch(ep, &receives(&segments, 4..10))
        .unwrap_err();
    assert_eq!(
        (refused.posted, refused.error.cause()),
        (4, Cause::QueueFull)
    );
    assert_eq!(completed(&bench, ep), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Completions without an event free records for the rest of a batch.
///
/// A single post frees them in the same way.
///
/// Spec: DTO-05
#[test]
fn a_batch_makes_room_for_itself() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let segments = [segment(&bench)];
    let mut quiet = requests(&segments, 0..3);
    for request in &mut quiet {
        request.flags = CompletionFlags::SUPPRESS;
    }
    bench.ia.post_batch(ep, &quiet).unwrap();
    while bench
        .device
        .complete_request(bench.pair(ep), DtoStatus::Success)
    {}
    bench.device.take_doorbells();
    bench.ia.post_batch(ep, &requests(&segments, 3..7)).unwrap();
    assert_eq!(
        bench.device.take_doorbells(),
        2,
        "once for the one that had room"
    );
    assert_eq!(completed(&bench, ep), [3, 4, 5, 6]);
}

/// Spec: DTO-07
#[test]
fn refused_posts_of_a_batch_lose_nothing() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let segments = [segment(&bench)];
    for newest in 1..=4 {
        let taken = 4 - newest;
        bench.device.refuse_doorbell(newest);
        let refused = bench
            .ia
            .post_batch(ep, &requests(&segments, 0..4))
            .unwrap_err();
        assert_eq!(refused.posted as u32, taken);
        assert_eq!(refused.error.kind(), ErrorKind::InsufficientResources);
        assert_eq!(refused.error.cause(), Cause::DeviceRefused);
        // The refused requests left their records free.
        bench
            .ia
            .post_batch(ep, &requests(&segments, taken.into()..4))
            .unwrap();
        assert_eq!(completed(&bench, ep), [0, 1, 2, 3]);

        bench.device.refuse_doorbell(newest);
        let refused = bench
            .ia
            .post_recv_batch(ep, &receives(&segments, 0..4))
            .unwrap_err();
        assert_eq!(refused.posted as u32, taken);
        assert_eq!(refused.error.cause(), Cause::DeviceRefused);
        bench
            .ia
            .post_recv_batch(ep, &receives(&segments, taken.into()..4))
            .unwrap();
        assert_eq!(completed(&bench, ep), [0, 1, 2, 3]);
    }
    // A request that the device refuses before the doorbell.
    bench.device.refuse_next(BackendError::Resources);
    let refused = bench
        .ia
        .post_batch(ep, &requests(&segments, 0..4))
        .unwrap_err();
    assert_eq!(
        (refused.posted, refused.error.cause()),
        (0, Cause::DeviceRefused)
    );
    assert_eq!(completed(&bench, ep), []);
}

/// A refusal by the device is reported before a later invalid request.
///
/// Both are in one batch.
///
/// Spec: DTO-07
#[test]
fn the_first_refusal_is_the_one_that_is_told() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let good = [segment(&bench)];
    let bad = [LmrTriplet {
        length: 65,
        ..good[0]
    }];
    let mut batch = requests(&good, 0..4);
    batch[3].segments = &bad;
    bench.device.refuse_doorbell(2);
    let refused = bench.ia.post_batch(ep, &batch).unwrap_err();
    assert_eq!(
        (refused.posted, refused.error.cause()),
        (1, Cause::DeviceRefused)
    );
    assert_eq!(completed(&bench, ep), [0]);
}

/// Spec: DTO-07
#[test]
fn a_batch_for_what_is_no_endpoint_is_refused() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let segments = [segment(&bench)];
    let unconnected = bench.endpoint();
    for ep in [EpId::NULL, unconnected] {
        let refused = bench
            .ia
            .post_batch(ep, &requests(&segments, 0..2))
            .unwrap_err();
        let alone = bench.ia.post_send(ep, &segments, 0, NONE);
        assert_eq!((refused.posted, Err(refused.error)), (0, alone));
    }
    let refused = bench
        .ia
        .post_recv_batch(EpId::NULL, &receives(&segments, 0..2))
        .unwrap_err();
    let alone = bench.ia.post_recv(EpId::NULL, &segments, 0, NONE);
    assert_eq!((refused.posted, Err(refused.error)), (0, alone));
    // Receives may be posted before the connection.
    bench
        .ia
        .post_recv_batch(unconnected, &receives(&segments, 0..2))
        .unwrap();
}
