//! Extended operations.

use core::task::Poll;

use crate::attributes::SrqAttributes;
use crate::backend::{ExtendedSend, Extensions, RemoteRange, SendFlags};
use crate::endpoint::Extended;
use crate::error::{Cause, Error, ErrorKind, Subtype};
use crate::event::{
    AsyncEventKind, ConnectionEventKind, DtoOperation, Event, ExtendedCompletion,
    ExtendedOperation, REASON_PRIMARY,
};
use crate::flags::{CompletionFlags, DtoStatus, EndpointState, MemoryPrivileges};
use crate::id::EpId;
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{TestStorage, WakeCount, Work};

const NONE: CompletionFlags = CompletionFlags::empty();
const REMOTE: RmrTriplet = RmrTriplet {
    context: 9,
    address: 0x8000,
    length: 64,
};
const ADD: Extended = Extended::FetchAndAdd { add: 3 };
const SWAP: Extended = Extended::CompareAndSwap {
    compare: 1,
    swap: 2,
};
const WRITE: Extended = Extended::WriteImmediate { immediate: 0x77 };

/// Returns a bench with these extensions, a connected endpoint and a segment.
fn bench(storage: &mut TestStorage, extensions: Extensions) -> (Bench<'_>, EpId, LmrTriplet) {
    let bench = Bench::extended(storage, extensions);
    let region = bench.ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
        pz: bench.pz,
        privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    });
    let segment = LmrTriplet {
        context: region.unwrap().lmr_context,
        address: 0x1000,
        length: 8,
    };
    let ep = bench.connected();
    (bench, ep, segment)
}

/// Spec: DTO-04, DTO-11
#[test]
fn they_go_to_the_device_and_complete_in_their_own_words() {
    let mut storage = TestStorage::new();
    let (bench, ep, segment) = bench(&mut storage, Extensions::all());
    let pair = bench.pair(ep);
    assert_eq!(bench.ia.extensions(), Extensions::all());
    let remote = RemoteRange {
        address: 0x8000,
        key: 9,
    };
    for (cookie, (asked, sent, told)) in [
        (
            WRITE,
            ExtendedSend::WriteImmediate {
                remote,
                immediate: 0x77,
            },
            ExtendedOperation::WriteImmediate,
        ),
        (
            ADD,
            ExtendedSend::FetchAndAdd { remote, add: 3 },
            ExtendedOperation::FetchAndAdd,
        ),
        (
            SWAP,
            ExtendedSend::CompareAndSwap {
                remote,
                compare: 1,
                swap: 2,
            },
            ExtendedOperation::CompareAndSwap,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let cookie = cookie as u64;
        let fenced = CompletionFlags::BARRIER_FENCE;
        for status in [DtoStatus::Success, DtoStatus::Flushed] {
            // An atomic operation uses the first 8 bytes of its segments; a write uses all.
            let room = if asked == WRITE {
                segment
            } else {
                LmrTriplet {
                    length: 60,
                    ..segment
                }
            };
            bench
                .ia
                .post_extended(ep, asked, &[room], cookie, &REMOTE, fenced)
                .unwrap();
            let (requests, _) = bench.device.posted(pair);
            let [posted] = requests.as_slice() else {
                panic!("{requests:?}");
            };
            let Work::Extended(request) = posted.work else {
                panic!("{posted:?}");
            };
            assert_eq!((request.operation, request.length), (sent, 8));
            assert_eq!(request.flags, SendFlags::FENCE);
            assert_eq!(
                (posted.segments[0].address, posted.segments[0].length),
                (0x1000, 8)
            );
            bench.device.complete_request(pair, status);
            let event = Event::Extended(ExtendedCompletion {
                ep,
                cookie,
                status,
                transferred_length: 8,
                operation: told,
            });
            assert_eq!(bench.ia.evd_dequeue(bench.data), Ok(event));
            assert_eq!(event.number(), 0x4_0000);
        }
        // A completion polled into its record gives the same event; a suppressed one gives none.
        for flags in [NONE, CompletionFlags::SUPPRESS] {
            bench
                .ia
                .post_extended(ep, asked, &[segment], cookie, &REMOTE, flags)
                .unwrap();
            bench.device.complete_request(pair, DtoStatus::Success);
            bench.ia.poll_at(bench.data.slot());
            let event = Event::Extended(ExtendedCompletion {
                ep,
                cookie,
                status: DtoStatus::Success,
                transferred_length: 8,
                operation: told,
            });
            let expected = (flags == NONE).then_some(event);
            assert_eq!(bench.ia.evd_dequeue(bench.data).ok(), expected);
        }
    }
}

/// A receive completed by a peer's write reports the immediate value and the bytes written.
///
/// Spec: DTO-11
#[test]
fn numbers_come_with_receives() {
    let mut storage = TestStorage::new();
    let (bench, ep, segment) = bench(&mut storage, Extensions::all());
    let pair = bench.pair(ep);
    for (cookie, number) in [(1, Some(0xFFFF_FFFF)), (2, None), (3, Some(0))] {
        bench.ia.post_recv(ep, &[segment], cookie, NONE).unwrap();
        match number {
            Some(number) => bench.device.complete_with_number(pair, 1000, number),
            None => bench
                .device
                .complete_receive(pair, DtoStatus::Success, 5, false),
        };
        let event = bench.ia.evd_dequeue(bench.data).unwrap();
        match (event, number) {
            (Event::Extended(told), Some(number)) => {
                let immediate = ExtendedOperation::ReceiveImmediate { immediate: number };
                assert_eq!((told.operation, told.cookie), (immediate, cookie));
                assert_eq!((told.ep, told.transferred_length), (ep, 1000));
            }
            (Event::Dto(told), None) => {
                assert_eq!(told.operation, DtoOperation::Receive);
                assert_eq!((told.cookie, told.transferred_length), (cookie, 5));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Spec: DTO-06, DTO-07, GEN-06
#[test]
fn refusals_leave_no_trace() {
    let mut storage = TestStorage::new();
    let (bench, ep, segment) = bench(&mut storage, Extensions::all());
    let pair = bench.pair(ep);
    let refused = |ep, asked, segments: &[LmrTriplet], remote: &RmrTriplet, flags| {
        let refused = bench
            .ia
            .post_extended(ep, asked, segments, 1, remote, flags);
        assert_eq!(bench.device.posted(pair).0.len(), 0);
        let error: Error = refused.unwrap_err();
        (error.kind(), error.subtype(), error.cause())
    };
    let argument = |position: u8, cause| {
        let error = Error::invalid_argument(position);
        (error.kind(), error.subtype(), cause)
    };
    let short = RmrTriplet {
        length: 7,
        ..REMOTE
    };
    let odd = RmrTriplet {
        address: 0x8004,
        ..REMOTE
    };
    let other = LmrTriplet {
        address: 0x2000,
        ..segment
    };
    let small = LmrTriplet {
        length: 7,
        ..segment
    };
    for asked in [WRITE, ADD, SWAP] {
        let unconnected = bench.endpoint();
        let (kind, ..) = refused(unconnected, asked, &[segment], &REMOTE, NONE);
        assert_eq!(kind, ErrorKind::InvalidState);
        bench.ia.ep_free(unconnected).unwrap();
        let (kind, ..) = refused(unconnected, asked, &[segment], &REMOTE, NONE);
        assert_eq!(kind, ErrorKind::InvalidHandle);
        let unknown = CompletionFlags::from_bits_retain(0x8000);
        assert_eq!(
            refused(ep, asked, &[segment], &REMOTE, unknown).1,
            Subtype::InvalidArg6
        );
        assert_eq!(
            refused(ep, asked, &[other], &REMOTE, NONE).1,
            Subtype::InvalidArg3
        );
        let too_short = refused(ep, asked, &[segment], &short, NONE);
        assert_eq!(
            (too_short.0, too_short.2),
            (ErrorKind::LengthError, Cause::RemoteTooShort)
        );
    }
    for asked in [ADD, SWAP] {
        assert_eq!(
            refused(ep, asked, &[segment], &odd, NONE),
            argument(5, Cause::Misaligned)
        );
        // A long enough remote range is still refused for its alignment.
        let odd = RmrTriplet { length: 8, ..odd };
        assert_eq!(
            refused(ep, asked, &[segment], &odd, NONE),
            argument(5, Cause::Misaligned)
        );
        assert_eq!(
            refused(ep, asked, &[small], &REMOTE, NONE).0,
            ErrorKind::LengthError
        );
        assert_eq!(
            refused(ep, asked, &[], &REMOTE, NONE).0,
            ErrorKind::LengthError
        );
        assert_eq!(
            refused(ep, asked, &[small; 2], &REMOTE, NONE),
            argument(2, Cause::TooManySegments)
        );
    }
    // A full queue refuses the post; after a completion it has room again.
    for _ in 0..SMALL.max_request_dtos {
        bench
            .ia
            .post_extended(ep, ADD, &[segment], 1, &REMOTE, CompletionFlags::SUPPRESS)
            .unwrap();
    }
    let full = bench
        .ia
        .post_extended(ep, ADD, &[segment], 1, &REMOTE, NONE);
    assert_eq!(full.unwrap_err().subtype(), Subtype::ResourceTep);
    bench.device.complete_request(pair, DtoStatus::Success);
    bench
        .ia
        .post_extended(ep, ADD, &[segment], 1, &REMOTE, NONE)
        .unwrap();
}

/// Spec: DTO-12
#[test]
fn one_that_fails_breaks_the_connection() {
    for asked in [WRITE, ADD, SWAP] {
        for waiting in [false, true] {
            let mut storage = TestStorage::new();
            let (bench, ep, segment) = bench(&mut storage, Extensions::all());
            bench
                .ia
                .post_extended(ep, asked, &[segment], 1, &REMOTE, NONE)
                .unwrap();
            let pair = bench.pair(ep);
            bench.device.complete_request(pair, DtoStatus::RemoteAccess);
            let event = if waiting {
                let (_, waker) = WakeCount::new();
                let mut wait = bench.ia.evd_wait(bench.data, 1).unwrap();
                let Poll::Ready(Ok(waited)) = wait.poll(&waker) else {
                    panic!("it has failed");
                };
                waited.event
            } else {
                bench.ia.evd_dequeue(bench.data).unwrap()
            };
            let Event::Extended(told) = event else {
                panic!("{event:?}");
            };
            assert_eq!(told.status, DtoStatus::RemoteAccess);
            assert_eq!(bench.state(ep), EndpointState::Disconnected);
            let broken = (ConnectionEventKind::Broken, ep, 0);
            assert_eq!(bench.connection_events(), [broken]);
        }
    }
}

#[test]
fn devices_without_them_refuse_them() {
    let mut storage = TestStorage::new();
    let (bench, ep, segment) = bench(&mut storage, Extensions::FETCH_AND_ADD);
    for (asked, has) in [(WRITE, false), (ADD, true), (SWAP, false)] {
        let posted = bench
            .ia
            .post_extended(ep, asked, &[segment], 1, &REMOTE, NONE);
        let expected = if has {
            Ok(())
        } else {
            Err(Error::not_implemented())
        };
        assert_eq!(posted, expected);
    }
}

/// The end of an endpoint on a shared queue raises one asynchronous event, if requested.
#[test]
fn the_end_of_shared_receives_is_told_if_wanted() {
    for wanted in [false, true] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        if wanted {
            bench.ia.report_shared_ends();
        }
        let sizes = SrqAttributes {
            max_recv_dtos: 4,
            max_recv_iov: 1,
            low_watermark: 0,
        };
        let srq = bench.ia.srq_create(bench.pz, &sizes).unwrap();
        let shared = bench.ia.ep_create_with_srq(
            Some(bench.pz),
            Some(bench.data),
            Some(bench.data),
            Some(bench.connections),
            srq,
            &SMALL,
        );
        let shared = shared.unwrap();
        for (ep, told) in [(bench.endpoint(), false), (shared, wanted)] {
            bench.connect(ep);
            bench.establish(ep);
            bench
                .ia
                .ep_disconnect(ep, crate::flags::CloseFlags::Abrupt)
                .unwrap();
            let event = bench.ia.evd_dequeue(bench.ia.async_evd());
            let expected = Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: ep.handle(),
                reason: REASON_PRIMARY,
            };
            assert_eq!(event.ok(), told.then_some(expected));
            assert!(bench.ia.evd_dequeue(bench.ia.async_evd()).is_err());
        }
    }
}
