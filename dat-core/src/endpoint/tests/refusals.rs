//! Posts that the device refuses, when they are committed or when the doorbell rings.

use crate::attributes::SrqAttributes;
use crate::backend::BackendError;
use crate::error::{Cause, ErrorKind, Result, Subtype};
use crate::event::Event;
use crate::fixture::Bench;
use crate::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::testing::TestStorage;

/// A refused post has no effect: the next one takes its place, completions come for those that were
/// accepted alone, and a window that was to be bound keeps no region.
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
            memory: LmrMemory::Virtual(Region::pretend(0x1000, 64)),
            pz: bench.pz,
            privileges: MemoryPrivileges::ALL,
        })
        .unwrap();
    let rmr = ia.rmr_create(bench.pz).unwrap();
    let piece = LmrTriplet {
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
    // One segment has a way of its own.
    for segments in [&[piece][..], &[piece, LmrTriplet { length: 0, ..piece }]] {
        let requests: [&dyn Fn(u64) -> Result<()>; 4] = [
            &|cookie| ia.post_send(ep, segments, cookie, none),
            &|cookie| ia.post_rdma_write(ep, segments, cookie, &remote, none),
            &|cookie| ia.post_rdma_read(ep, segments, cookie, &remote, none),
            &|cookie| {
                let all = MemoryPrivileges::ALL;
                ia.rmr_bind(rmr, &piece, all, ep, cookie, none).map(|_| ())
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
    // One binding is left, whatever was refused.
    ia.lmr_free(lmr.lmr).unwrap_err();
    ia.rmr_free(rmr).unwrap();
    ia.lmr_free(lmr.lmr).unwrap();
}
