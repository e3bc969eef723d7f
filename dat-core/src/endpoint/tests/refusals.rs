//! Posts that the device refuses on commit or at the doorbell; posts at the limits.

use super::parameters::make;
use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::BackendError;
use crate::error::{Cause, ErrorKind, Result, Subtype};
use crate::event::Event;
use crate::flags::{
    CompletionFlags, DtoStatus, EpFields, EvdFlags, MemoryPrivileges, QualityOfService,
};
use crate::id::{EpId, SrqId};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{TestStorage, Work};

/// A post that the device refuses has no effect.
///
/// The next post takes its record, only accepted posts complete, and the window of a refused bind
/// holds no region.
///
/// Spec: DTO-07, DTO-10, SRQR-41, RMB-42
#[test]
fn a_post_that_the_device_refuses_leaves_no_trace() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.connected();
    let pair = bench.pair(ep);
    let size = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 2,
        low_watermark: 0,
    };
    let lmr = ia
        .lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
            pz: bench.pz,
            privileges: MemoryPrivileges::ALL,
        })
        .unwrap();
    let rmrs: [_; 4] = core::array::from_fn(|_| ia.rmr_create(bench.pz).unwrap());
    let segment = LmrTriplet {
        context: lmr.lmr_context,
        address: 0x1000,
        length: 8,
    };
    let remote = RmrTriplet {
        context: 1,
        address: 0,
        length: 8,
    };
    let none = CompletionFlags::empty();
    // Lists of one and of two segments.
    for segments in [
        &[segment][..],
        &[
            segment,
            LmrTriplet {
                length: 0,
                ..segment
            },
        ],
    ] {
        let requests: [&dyn Fn(u64) -> Result<()>; 4] = [
            &|cookie| ia.post_send(ep, segments, cookie, none),
            &|cookie| ia.post_rdma_write(ep, segments, cookie, &remote, none),
            &|cookie| ia.post_rdma_read(ep, segments, cookie, &remote, none),
            &|cookie| {
                let all = MemoryPrivileges::ALL;
                let rmr = rmrs[cookie as usize % 4];
                ia.rmr_bind(rmr, &segment, all, ep, cookie, none)
                    .map(|_| ())
            },
        ];
        let srq = ia.srq_create(bench.pz, &size).unwrap();
        let receive = |cookie| ia.post_recv(ep, segments, cookie, none);
        let shared = |cookie| ia.srq_post_recv(srq, segments, cookie);
        let kinds = requests
            .into_iter()
            .map(|post| (post, Subtype::ResourceTep))
            .chain([
                (&receive as &dyn Fn(u64) -> Result<()>, Subtype::ResourceTep),
                (&shared, Subtype::ResourceSrq),
            ]);
        for (post, resource) in kinds {
            for number in 0..4 {
                for at_the_doorbell in [false, true] {
                    if at_the_doorbell {
                        bench.device.refuse_doorbell(1);
                    } else {
                        bench.device.refuse_next(BackendError::Resources);
                    }
                    let error = post(99).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InsufficientResources);
                    assert_eq!(error.subtype(), resource);
                    assert_eq!(error.cause(), Cause::DeviceRefused);
                }
                post(number).unwrap();
            }
            assert_eq!(post(99).unwrap_err().cause(), Cause::QueueFull);
            if resource == Subtype::ResourceSrq {
                continue;
            }
            while bench.device.complete_request(pair, DtoStatus::Success)
                || bench
                    .device
                    .complete_receive(pair, DtoStatus::Success, 0, false)
            {}
            for number in 0..4 {
                let cookie = match ia.evd_dequeue(bench.data).unwrap() {
                    Event::Dto(completion) => completion.cookie,
                    Event::RmrBind(completion) => completion.cookie,
                    other => panic!("{other:?}"),
                };
                assert_eq!(cookie, number);
            }
            assert!(ia.evd_dequeue(bench.data).is_err());
        }
        ia.srq_free(srq).unwrap();
    }
    // The last accepted bind holds the region; refused binds hold nothing.
    ia.lmr_free(lmr.lmr).unwrap_err();
    for rmr in rmrs {
        ia.rmr_free(rmr).unwrap();
    }
    ia.lmr_free(lmr.lmr).unwrap();
}

/// Receives on freed or null handles are refused by the handle.
///
/// Spec: GEN-01, EPF-01, SRQR-01
#[test]
fn receives_on_what_is_gone_are_refused_by_the_handle() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.endpoint();
    ia.ep_free(ep).unwrap();
    for gone in [ep, EpId::NULL] {
        let refused = ia
            .post_recv(gone, &[], 1, CompletionFlags::empty())
            .unwrap_err();
        assert_eq!(refused.subtype(), Subtype::InvalidHandleEp);
    }
    let size = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 2,
        low_watermark: 0,
    };
    let srq = ia.srq_create(bench.pz, &size).unwrap();
    ia.srq_free(srq).unwrap();
    for gone in [srq, SrqId::NULL] {
        let refused = ia.srq_post_recv(gone, &[], 1).unwrap_err();
        assert_eq!(refused.subtype(), Subtype::InvalidHandleSrq);
    }
}

/// The longest message and the longest access are accepted; one byte more is too long.
///
/// If the queue is full, that is reported for the longest.
///
/// Spec: EPC-10, EPS-03, DTO-07, DTO-10
#[test]
fn the_longest_goes_and_a_byte_more_is_too_long() {
    const MOST: u64 = 100;
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let attributes = EpAttributes {
        max_message_size: MOST,
        max_rdma_size: MOST,
        max_request_dtos: 1,
        ..SMALL
    };
    let lmr = ia
        .lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 256)),
            pz: bench.pz,
            privileges: MemoryPrivileges::ALL,
        })
        .unwrap();
    let segment = |length| LmrTriplet {
        context: lmr.lmr_context,
        address: 0x1000,
        length,
    };
    let remote = |length| RmrTriplet {
        context: 1,
        address: 0,
        length,
    };
    let none = CompletionFlags::empty();
    for operation in 0..3 {
        let ep = make(&bench, &attributes).unwrap();
        bench.connect(ep);
        bench.establish(ep);
        let post = |length| match operation {
            0 => ia.post_send(ep, &[segment(length)], 1, none),
            1 => ia.post_rdma_write(ep, &[segment(length)], 1, &remote(length), none),
            _ => ia.post_rdma_read(ep, &[segment(length)], 1, &remote(length), none),
        };
        for length in [MOST + 1, MOST + 2] {
            let refused = post(length).unwrap_err();
            assert_eq!(refused.subtype(), Subtype::InvalidArg2);
            assert_eq!(refused.cause(), Cause::MessageTooLong);
        }
        post(MOST).unwrap();
        assert_eq!(post(MOST).unwrap_err().cause(), Cause::QueueFull);
        ia.ep_free(ep).unwrap();
    }
}

/// A receive's length is at most `u32::MAX`; a full queue is reported for the longest.
///
/// Spec: SRQR-07, DTO-07
#[test]
fn a_buffer_is_as_long_as_a_length_can_say() {
    const PART: usize = 1 << 30;
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let lmr = ia
        .lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, PART)),
            pz: bench.pz,
            privileges: MemoryPrivileges::ALL,
        })
        .unwrap();
    let attributes = EpAttributes {
        max_recv_iov: 4,
        max_recv_dtos: 1,
        max_message_size: 1 << 30,
        ..SMALL
    };
    let ep = make(&bench, &attributes).unwrap();
    let size = SrqAttributes {
        max_recv_dtos: 1,
        max_recv_iov: 4,
        low_watermark: 0,
    };
    let srq = ia.srq_create(bench.pz, &size).unwrap();
    let whole = LmrTriplet {
        context: lmr.lmr_context,
        address: 0x1000,
        length: PART as u64,
    };
    let less = LmrTriplet {
        length: PART as u64 - 1,
        ..whole
    };
    let own = |segments: &[LmrTriplet]| ia.post_recv(ep, segments, 1, CompletionFlags::empty());
    let shared = |segments: &[LmrTriplet]| ia.srq_post_recv(srq, segments, 1);
    for post in [&own as &dyn Fn(&[LmrTriplet]) -> Result<()>, &shared] {
        let refused = post(&[whole; 4]).unwrap_err();
        assert_eq!(refused.subtype(), Subtype::InvalidArg2);
        assert_eq!(refused.cause(), Cause::MessageTooLong);
        let longest = [whole, whole, whole, less];
        post(&longest).unwrap();
        assert_eq!(post(&longest).unwrap_err().cause(), Cause::QueueFull);
    }
}

/// A device queue may have less room than the core counts.
///
/// The post is then refused as on a full queue, or posted once completions were polled.
///
/// Spec: GEN-06, SRQR-41
#[test]
fn a_queue_without_room_is_a_full_queue() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.connected();
    let none = CompletionFlags::empty();
    let srq = ia.srq_create(
        bench.pz,
        &SrqAttributes {
            max_recv_dtos: 4,
            max_recv_iov: 1,
            low_watermark: 0,
        },
    );
    let srq = srq.unwrap();
    let posts: [&dyn Fn() -> Result<()>; 3] = [
        &|| ia.post_send(ep, &[], 1, none),
        &|| ia.post_recv(ep, &[], 1, none),
        &|| ia.srq_post_recv(srq, &[], 1),
    ];
    for post in posts {
        bench.device.withhold_room(u32::MAX);
        let error = post().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientResources);
        assert_eq!(error.cause(), Cause::QueueFull);
        bench.device.withhold_room(0);
        assert_eq!(post(), Ok(()), "the refused post left no trace");
    }
    // The common way and the first try of the slow one find no room; the second one does.
    bench.device.withhold_room(2);
    assert_eq!(ia.post_send(ep, &[], 2, none), Ok(()));
}

/// A request that is refused was never posted, not even for a moment.
///
/// The next request gets the next token. Otherwise a faulty device could complete a token of the
/// refused request, and its record would be freed twice.
///
/// Spec: DTO-07, GEN-06
#[test]
fn a_refused_request_uses_up_no_token() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.connected();
    let pair = bench.pair(ep);
    let none = CompletionFlags::empty();
    let wrong = LmrTriplet {
        context: 0xDEAD_0000,
        address: 0x1000,
        length: 8,
    };
    let token = || {
        assert_eq!(ia.post_send(ep, &[], 1, none), Ok(()));
        assert_eq!(ia.post_recv(ep, &[], 1, none), Ok(()));
        let (requests, receives) = bench.device.posted(pair);
        let tokens = [&requests, &receives].map(|posted| match posted[0].work {
            Work::Send(request) => request.token,
            Work::Receive(request) => request.token,
            other => panic!("{other:?}"),
        });
        assert!(bench.device.complete_request(pair, DtoStatus::Success));
        assert!(
            bench
                .device
                .complete_receive(pair, DtoStatus::Success, 0, false)
        );
        while ia.evd_dequeue(bench.data).is_ok() {}
        tokens
    };
    // Both rings have four records, so each fifth token is of the same one.
    let round = || {
        let first = token();
        for _ in 0..3 {
            token();
        }
        first
    };
    let [first, second] = [round(), round()];
    for segments in [&[wrong][..], &[wrong, LmrTriplet { length: 0, ..wrong }]] {
        assert!(ia.post_send(ep, segments, 1, none).is_err());
        assert!(ia.post_recv(ep, segments, 1, none).is_err());
    }
    let third = round();
    for side in 0..2 {
        assert_eq!(third[side] - second[side], second[side] - first[side]);
    }
}

/// An INVALID_PARAMETER error names the parameter of the Rust call.
///
/// Spec: GEN-04, DTO-07
#[test]
fn an_error_names_the_parameter() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.connected();
    let nothing = LmrTriplet {
        context: 0,
        address: 0,
        length: 0,
    };
    let none = CompletionFlags::empty();
    let unknown = CompletionFlags::from_bits_retain(1 << 31);
    let mut param = ia.ep_query(ep, EpFields::all()).unwrap();
    param.attributes.qos = QualityOfService::from_bits_retain(1 << 30);
    for (outcome, text) in [
        (
            ia.post_send(ep, &[nothing; 100], 0, none),
            "invalid parameter `segments` (too many segments)",
        ),
        (
            ia.post_send(ep, &[], 0, unknown),
            "invalid parameter `flags` (undefined flag bits)",
        ),
        (
            ia.evd_create(0, None, EvdFlags::DTO).map(drop),
            "invalid parameter `min_qlen` (a count or size is zero)",
        ),
        (
            ia.ep_set_watermark(ep, 1, -2),
            "invalid parameter `hard` (a count or size is negative)",
        ),
        (
            ia.ep_modify(ep, EpFields::all(), &param),
            "invalid parameter `fields` (a field cannot be modified)",
        ),
        (
            ia.ep_modify(bench.endpoint(), EpFields::QOS, &param),
            "invalid parameter `wanted` (undefined flag bits)",
        ),
        (
            ia.ep_create(None, None, None, None, Some(&param.attributes))
                .map(drop),
            "invalid parameter `attributes` (undefined flag bits)",
        ),
    ] {
        let error = outcome.expect_err(text);
        assert_eq!(std::format!("{error}"), text);
    }
}
