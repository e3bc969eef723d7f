//! Segment lists of posts, from empty to 15 segments.

use std::format;
use std::vec::Vec;

use super::parameters::make;
use crate::attributes::{EpAttributes, IaAttributes};
use crate::backend::{Extensions, Segment, SendFlags, SendOperation};
use crate::endpoint::{BatchOperation, BatchRequest, Extended};
use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::{CompletionFlags, DtoStatus, EpFields, MemoryPrivileges};
use crate::id::INDEX_BITS;
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage, Work};

/// Returns a segment of one byte that any post accepts.
fn byte(bench: &Bench<'_>) -> LmrTriplet {
    let request = LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
        pz: bench.pz,
        privileges: MemoryPrivileges::ALL,
    };
    LmrTriplet {
        context: bench.ia.lmr_create(&request).unwrap().lmr_context,
        address: 0x1000,
        length: 1,
    }
}

/// An operation's segment limit is the smaller of its own and the general one.
///
/// Sizes beyond 32 bits are capped at the largest that a work request can carry.
///
/// Spec: EPW-38, EPB-07, EPS-03, EPC-10
#[test]
fn segment_limits_follow_the_attributes() {
    let mut storage = TestStorage::new();
    let adapter = IaAttributes {
        max_message_size: u64::MAX,
        max_rdma_size: u64::MAX,
        ..IA_ATTRIBUTES
    };
    let bench = Bench::with(&mut storage, adapter, PROVIDER_ATTRIBUTES);
    let attributes = EpAttributes {
        max_request_iov: 3,
        max_rdma_write_iov: 2,
        max_rdma_read_iov: 4,
        max_recv_iov: 1,
        max_message_size: u64::MAX,
        max_rdma_size: 1 << 32,
        max_request_dtos: 64,
        ..SMALL
    };
    let ep = make(&bench, &attributes).unwrap();
    let kept = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    assert_eq!(kept.attributes, attributes);
    bench.connect(ep);
    bench.establish(ep);
    let full = byte(&bench);
    let none = CompletionFlags::empty();
    let each = [LmrTriplet::default(), full].map(|segment| [segment; 4]);
    for (list, count) in each
        .iter()
        .flat_map(|list| (0..=4).map(move |count| (list, count)))
    {
        let list = &list[..count];
        let remote = RmrTriplet {
            length: list.iter().map(|segment| segment.length).sum(),
            ..RmrTriplet::default()
        };
        let send = bench.ia.post_send(ep, list, 0, none);
        let write = bench.ia.post_rdma_write(ep, list, 0, &remote, none);
        let read = bench.ia.post_rdma_read(ep, list, 0, &remote, none);
        let receive = bench.ia.post_recv(ep, list, 0, none);
        assert_eq!(send.is_ok(), count <= 3);
        assert_eq!(write.is_ok(), count <= 2);
        assert_eq!(read.is_ok(), count <= 3);
        assert_eq!(receive.is_ok(), count <= 1);
        for refused in [send, write, read, receive] {
            if let Err(error) = refused {
                assert_eq!(error.subtype(), Subtype::InvalidArg2);
                assert_eq!(error.cause(), Cause::TooManySegments);
            }
        }
    }
}

/// An endpoint with `max_rdma_read_out` 0 refuses reads and atomic operations, whatever their
/// length.
///
/// This holds for single posts and in batches; other requests are accepted. The last modify
/// decides.
///
/// Spec: EPB-05, EPB-07, DTO-10
#[test]
fn an_endpoint_without_reads_takes_none() {
    let mut storage = TestStorage::new();
    let bench = Bench::extended(&mut storage, Extensions::all());
    let ia = &bench.ia;
    let ep = make(&bench, &EpAttributes::DEFAULT).unwrap();
    let modify = |reads| {
        let mut wanted = ia.ep_query(ep, EpFields::all()).unwrap();
        wanted.attributes.max_rdma_read_out = reads;
        ia.ep_modify(ep, EpFields::MAX_RDMA_READ_OUT, &wanted)
            .unwrap();
    };
    modify(1);
    modify(0);
    bench.connect(ep);
    bench.establish(ep);
    let full = byte(&bench);
    let none = CompletionFlags::empty();
    for segment in [LmrTriplet::default(), full] {
        for count in 0..=4 {
            let segments = &[segment; 4][..count];
            let remote = RmrTriplet {
                length: segment.length * count as u64,
                ..RmrTriplet::default()
            };
            let alone = ia.post_rdma_read(ep, segments, 1, &remote, none);
            let request = |operation| BatchRequest {
                operation,
                segments,
                cookie: 2,
                flags: none,
            };
            let batch = [BatchOperation::Send, BatchOperation::RdmaRead(remote)].map(request);
            let among = ia.post_batch(ep, &batch).unwrap_err();
            assert_eq!(among.posted, 1);
            let number = RmrTriplet {
                length: 8,
                ..RmrTriplet::default()
            };
            let add = Extended::FetchAndAdd { add: 1 };
            let atomic = ia.post_extended(ep, add, segments, 3, &number, none);
            for error in [alone.unwrap_err(), among.error, atomic.unwrap_err()] {
                assert_eq!(
                    (error.subtype(), error.cause()),
                    (Subtype::InvalidArg2, Cause::NoReads)
                );
            }
        }
    }
    let reader = make(&bench, &EpAttributes::DEFAULT).unwrap();
    let mut wanted = ia.ep_query(reader, EpFields::all()).unwrap();
    wanted.attributes.max_rdma_read_out = 1;
    ia.ep_modify(reader, EpFields::MAX_RDMA_READ_OUT, &wanted)
        .unwrap();
    bench.connect(reader);
    bench.establish(reader);
    ia.post_rdma_read(reader, &[], 1, &RmrTriplet::default(), none)
        .unwrap();
}

/// Lists of any length are treated alike.
///
/// All segments that are not empty reach the device in list order. A read cuts them to the remote
/// range. One bad segment at any index refuses the post without a trace.
///
/// Spec: EPW-07, EPW-08, DTO-06, DTO-07
#[test]
fn every_count_of_segments_is_treated_alike() {
    // Longest tested list.
    const MOST: usize = 15;
    let mut storage = TestStorage::new();
    let adapter = IaAttributes {
        max_iov_segments_per_dto: MOST as i32,
        max_iov_segments_per_rdma_read: MOST as i32,
        max_iov_segments_per_rdma_write: MOST as i32,
        ..IA_ATTRIBUTES
    };
    let bench = Bench::with(&mut storage, adapter, PROVIDER_ATTRIBUTES);
    let ia = &bench.ia;
    let attributes = EpAttributes {
        max_request_iov: MOST as i32,
        max_rdma_write_iov: MOST as i32,
        max_rdma_read_iov: MOST as i32,
        ..SMALL
    };
    let ep = make(&bench, &attributes).unwrap();
    bench.connect(ep);
    bench.establish(ep);
    let pair = bench.pair(ep);
    let region = |base| {
        let memory = LmrMemory::Virtual(Region::from_addresses(base, 64));
        let privileges = MemoryPrivileges::ALL;
        let request = LmrRequest {
            memory,
            pz: bench.pz,
            privileges,
        };
        ia.lmr_create(&request).unwrap().lmr_context
    };
    let contexts = [region(0x1000), region(0x2000)];
    let none = CompletionFlags::empty();
    let posted = |segments: &[LmrTriplet], operation: usize, remote: u64| {
        let remote = RmrTriplet {
            context: 1,
            address: 0,
            length: remote,
        };
        match operation {
            0 => ia.post_send(ep, segments, 7, none),
            1 => ia.post_rdma_write(ep, segments, 7, &remote, none),
            _ => ia.post_rdma_read(ep, segments, 7, &remote, none),
        }
    };
    for count in 1..=MOST {
        let good: Vec<LmrTriplet> = (0..count)
            .map(|place| LmrTriplet {
                context: contexts[place % 2],
                address: [0x1000, 0x2000][place % 2] + place as u64,
                length: 1 + place as u64,
            })
            .collect();
        let total: u64 = good.iter().map(|segment| segment.length).sum();
        for operation in 0..3 {
            // The whole list, then with each segment empty in turn.
            for hole in 0..=count {
                let mut list = good.clone();
                if let Some(segment) = list.get_mut(hole) {
                    // The triplet of an empty segment is not checked.
                    *segment = LmrTriplet::default();
                }
                let room: u64 = list.iter().map(|segment| segment.length).sum();
                // A shorter read ends within a segment.
                for remote in if operation == 2 {
                    0..=room
                } else {
                    room..=room
                } {
                    posted(&list, operation, remote).unwrap();
                    let (requests, _) = bench.device.posted(pair);
                    let [request] = requests.as_slice() else {
                        panic!("{requests:?}");
                    };
                    let Work::Send(sent) = request.work else {
                        panic!("{request:?}");
                    };
                    let moved = request
                        .segments
                        .iter()
                        .map(|segment| u64::from(segment.length));
                    assert_eq!(moved.sum::<u64>(), remote);
                    assert!(matches!(
                        (operation, sent.operation),
                        (0, SendOperation::Send)
                            | (1, SendOperation::RdmaWrite(_))
                            | (2, SendOperation::RdmaRead(_))
                    ));
                    let mut left = remote;
                    let wanted: Vec<(u64, u32)> = list
                        .iter()
                        .map(|segment| {
                            let taken = segment.length.min(left);
                            left -= taken;
                            (segment.address, taken as u32)
                        })
                        .filter(|(_, length)| *length != 0)
                        .collect();
                    let told = |segment: &Segment| (segment.address, segment.length);
                    let given: Vec<_> = request.segments.iter().map(told).collect();
                    assert_eq!(given, wanted, "{count} segments, hole at {hole}");
                    assert!(bench.device.complete_request(pair, DtoStatus::Success));
                    ia.evd_dequeue(bench.data).unwrap();
                }
            }
            // Each segment wrong in turn, in every way.
            for wrong in 0..count {
                let faults = [
                    (
                        LmrTriplet {
                            context: 0,
                            ..good[wrong]
                        },
                        Cause::UnknownContext,
                    ),
                    (
                        LmrTriplet {
                            context: good[wrong].context + (1 << INDEX_BITS),
                            ..good[wrong]
                        },
                        Cause::StaleContext,
                    ),
                    (
                        LmrTriplet {
                            address: 0xFFF,
                            ..good[wrong]
                        },
                        Cause::OutsideRegion,
                    ),
                    (
                        LmrTriplet {
                            length: 65,
                            ..good[wrong]
                        },
                        Cause::OutsideRegion,
                    ),
                    (
                        LmrTriplet {
                            length: u64::MAX,
                            ..good[wrong]
                        },
                        Cause::AddressOverflow,
                    ),
                ];
                for (fault, cause) in faults {
                    let mut list = good.clone();
                    list[wrong] = fault;
                    let error = posted(&list, operation, total).unwrap_err();
                    assert_eq!(
                        error.cause(),
                        cause,
                        "{count} segments, {wrong} is {fault:?}"
                    );
                    assert!(bench.device.posted(pair).0.is_empty());
                }
            }
            // Valid segments, whose total does not fit the remote range.
            let (remote, cause) = match operation {
                1 => (total - 1, Cause::RemoteTooShort),
                2 => (total + 1, Cause::LocalTooShort),
                _ => continue,
            };
            assert_eq!(posted(&good, operation, remote).unwrap_err().cause(), cause);
            assert!(bench.device.posted(pair).0.is_empty());
        }
    }
    // The refused posts used no record.
    for _ in 0..attributes.max_request_dtos {
        posted(&[], 0, 0).unwrap();
    }
    assert_eq!(posted(&[], 0, 0).unwrap_err().cause(), Cause::QueueFull);
}

/// Sends and writes need read access to all their segments, reads need write access.
///
/// The device gets the fence for all operations, and the solicited event for Sends only.
///
/// Spec: EPW-09, EPW-33, EPW-37, EPB-01
#[test]
fn each_operation_asks_for_its_own_right_and_its_own_flags() {
    const FLAGS: [(CompletionFlags, bool, bool); 4] = [
        (CompletionFlags::empty(), false, false),
        (CompletionFlags::BARRIER_FENCE, true, false),
        (CompletionFlags::SOLICITED_WAIT, false, true),
        (
            CompletionFlags::BARRIER_FENCE.union(CompletionFlags::SOLICITED_WAIT),
            true,
            true,
        ),
    ];
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.connected();
    let pair = bench.pair(ep);
    let segments =
        [MemoryPrivileges::LOCAL_READ, MemoryPrivileges::LOCAL_WRITE].map(|privileges| {
            let request = LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
                pz: bench.pz,
                privileges,
            };
            LmrTriplet {
                context: ia.lmr_create(&request).unwrap().lmr_context,
                address: 0x1000,
                length: 8,
            }
        });
    for (operation, (right, segment)) in (0..3).flat_map(|it| {
        segments
            .iter()
            .enumerate()
            .map(move |segment| (it, segment))
    }) {
        for (count, (flags, fence, solicited)) in
            (1..=2).flat_map(|count| FLAGS.map(|flags| (count, flags)))
        {
            let told = format!("operation {operation}, right {right}, {count} segments, {flags:?}");
            let segments = &[*segment; 2][..count];
            let remote = RmrTriplet {
                context: 1,
                address: 0,
                length: 8 * count as u64,
            };
            let answer = match operation {
                0 => ia.post_send(ep, segments, 7, flags),
                1 => ia.post_rdma_write(ep, segments, 7, &remote, flags),
                _ => ia.post_rdma_read(ep, segments, 7, &remote, flags),
            };
            let (requests, _) = bench.device.posted(pair);
            if (operation == 2) != (right == 1) {
                let missing = [Subtype::PrivilegesWrite, Subtype::PrivilegesRead][right];
                let error = answer.expect_err(&told);
                assert_eq!(error.kind(), ErrorKind::PrivilegesViolation, "{told}");
                assert_eq!(error.subtype(), missing, "{told}");
                assert!(requests.is_empty(), "{told}");
                continue;
            }
            assert_eq!(answer, Ok(()), "{told}");
            let [request] = requests.as_slice() else {
                panic!("{told}: {requests:?}");
            };
            let Work::Send(sent) = request.work else {
                panic!("{told}: {request:?}");
            };
            assert_eq!(sent.flags.contains(SendFlags::FENCE), fence, "{told}");
            assert_eq!(
                sent.flags.contains(SendFlags::SOLICITED),
                solicited && operation == 0,
                "{told}"
            );
            assert!(bench.device.complete_request(pair, DtoStatus::Success));
            ia.evd_dequeue(bench.data).unwrap();
        }
    }
}

/// With a segment limit of 0, any segment is refused, even an empty one.
///
/// A post without segments is accepted.
///
/// Spec: EPW-38, EPC-10
#[test]
fn an_endpoint_that_may_have_no_segment_takes_none() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let attributes = EpAttributes {
        max_request_iov: 0,
        max_recv_iov: 0,
        ..SMALL
    };
    let ep = make(&bench, &attributes).unwrap();
    bench.connect(ep);
    bench.establish(ep);
    let full = byte(&bench);
    let empty = LmrTriplet { length: 0, ..full };
    let none = CompletionFlags::empty();
    for segment in [full, empty, LmrTriplet::default()] {
        let remote = RmrTriplet {
            length: segment.length,
            ..RmrTriplet::default()
        };
        for outcome in [
            bench.ia.post_send(ep, &[segment], 0, none),
            bench.ia.post_rdma_write(ep, &[segment], 0, &remote, none),
            bench.ia.post_rdma_read(ep, &[segment], 0, &remote, none),
            bench.ia.post_recv(ep, &[segment], 0, none),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(
                (error.subtype(), error.cause()),
                (Subtype::InvalidArg2, Cause::TooManySegments),
                "{segment:?}"
            );
        }
    }
    bench.send(ep, 1);
    bench.receive(ep, 2);
}
