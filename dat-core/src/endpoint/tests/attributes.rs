//! Attributes and handles that endpoints are created and modified with.

use std::vec::Vec;

use crate::attributes::{EpAttributes, IaAttributes, SrqAttributes};
use crate::endpoint::EpParam;
use crate::error::{Cause, Subtype};
use crate::flags::{EndpointState, EpFields, EvdFlags};
use crate::id::SrqId;
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};

/// Attributes that no endpoint can have.
const BAD: EpAttributes = EpAttributes {
    max_request_iov: -1,
    ..SMALL
};

/// Default attributes stay within the adapter's limits.
///
/// Applies to an endpoint created without attributes and to one that a connection request brought.
///
/// Spec: EPC-03, PSC-03
#[test]
fn default_attributes_stay_within_the_adapters_limits() {
    let adapter = IaAttributes {
        max_dto_per_ep: 8,
        max_iov_segments_per_dto: 2,
        max_message_size: 1 << 20,
        max_rdma_size: 1 << 19,
        max_iov_segments_per_rdma_read: 1,
        ..IA_ATTRIBUTES
    };
    let expected = EpAttributes::default_for(&adapter);
    assert_ne!(expected, EpAttributes::DEFAULT);
    let mut storage = TestStorage::new();
    let bench = Bench::with(&mut storage, adapter, PROVIDER_ATTRIBUTES);
    let attributes = |ep| {
        let param = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        param.attributes
    };
    let bare = bench.ia.ep_create(None, None, None, None, None).unwrap();
    assert_eq!(attributes(bare), expected);
    let (brought, _) = bench.in_state(EndpointState::TentativeConnectionPending);
    assert_eq!(attributes(brought), expected);
}

/// A stale dispatcher handle is refused by its role, before bad attributes are.
///
/// Holds while the slot is free and after another dispatcher reuses it.
///
/// Spec: EPC-08, GEN-03, GEN-06
#[test]
fn a_dispatcher_that_is_gone_is_refused_before_anything_else() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let make = || bench.ia.evd_create(1, None, EvdFlags::all());
    // Fills the table, so that the next dispatcher gets the same slot.
    let gone = core::iter::from_fn(|| make().ok()).last().unwrap();
    bench.ia.evd_free(gone).unwrap();
    let refused = |attributes| {
        let pz = Some(bench.pz);
        for (receive, request, connect, role) in [
            (Some(gone), None, None, Subtype::InvalidHandleEvdRecv),
            (None, Some(gone), None, Subtype::InvalidHandleEvdRequest),
            (None, None, Some(gone), Subtype::InvalidHandleEvdConn),
        ] {
            let error = bench
                .ia
                .ep_create(pz, receive, request, connect, Some(attributes))
                .unwrap_err();
            assert_eq!((error.subtype(), error.cause()), (role, Cause::Stale));
        }
    };
    refused(&BAD);
    let next = make().unwrap();
    assert_eq!(next.index(), gone.index());
    refused(&BAD);
    bench.ia.evd_free(next).unwrap();
}

/// A stale or null shared receive queue is refused before bad attributes are.
///
/// Spec: EPX-09, GEN-03, GEN-06
#[test]
fn a_shared_queue_that_is_gone_is_refused_before_anything_else() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let attributes = SrqAttributes {
        max_recv_dtos: 1,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let make = || bench.ia.srq_create(bench.pz, &attributes);
    let gone = core::iter::from_fn(|| make().ok()).last().unwrap();
    bench.ia.srq_free(gone).unwrap();
    let refused = |srq, cause| {
        let error = bench
            .ia
            .ep_create_with_srq(Some(bench.pz), None, None, None, srq, &BAD)
            .unwrap_err();
        assert_eq!(
            (error.subtype(), error.cause()),
            (Subtype::InvalidHandleSrq, cause)
        );
    };
    refused(gone, Cause::Stale);
    refused(SrqId::NULL, Cause::NullHandle);
    let next = make().unwrap();
    assert_eq!(next.index(), gone.index());
    refused(gone, Cause::Stale);
}

/// A queue needs its own dispatcher if its depth is not 0.
///
/// Receives on a shared receive queue need none either: the buffers belong to the shared queue. A
/// refused change leaves the endpoint as it was.
///
/// Spec: EPM-07, EPX-05, DTO-02
#[test]
fn places_in_a_queue_need_its_own_dispatcher() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let none = EpAttributes {
        max_recv_dtos: 0,
        max_request_dtos: 0,
        ..SMALL
    };
    let (receives, requests) = (EpFields::MAX_RECV_DTOS, EpFields::MAX_REQUEST_DTOS);
    let data = Some(bench.data);
    let change = |ep, fields, attributes| {
        let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        let wanted = EpParam {
            attributes,
            ..before
        };
        let outcome = bench.ia.ep_modify(ep, fields, &wanted);
        if let Err(error) = outcome {
            assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
            assert_eq!(error.subtype(), Subtype::InvalidArg3);
            assert_eq!(error.cause(), Cause::DispatcherMissing);
        }
        outcome.is_ok()
    };
    for (receive, request) in [(None, None), (data, None), (None, data), (data, data)] {
        let pz = Some(bench.pz);
        let ep = bench
            .ia
            .ep_create(pz, receive, request, None, Some(&none))
            .unwrap();
        let (may_receive, may_request) = (receive.is_some(), request.is_some());
        assert!(change(ep, receives | requests, none));
        assert_eq!(
            change(ep, receives | requests, SMALL),
            may_receive && may_request
        );
        assert!(change(ep, receives | requests, none));
        assert_eq!(change(ep, receives, SMALL), may_receive);
        assert_eq!(change(ep, requests, SMALL), may_request);
        bench.ia.ep_free(ep).unwrap();
    }
    let attributes = SrqAttributes {
        max_recv_dtos: 1,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = bench.ia.srq_create(bench.pz, &attributes).unwrap();
    let pz = Some(bench.pz);
    let shared = bench
        .ia
        .ep_create_with_srq(pz, None, None, None, srq, &none)
        .unwrap();
    assert!(change(shared, receives, SMALL));
    assert!(!change(shared, requests, SMALL));
}

/// A modify sets the device's watermarks only if it changes the soft high watermark.
///
/// The attribute takes effect only on an endpoint with a shared receive queue.
///
/// Spec: EPM-03, EPH-01
#[test]
fn a_change_tells_the_device_of_a_new_watermark_alone() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let attributes = SrqAttributes {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = bench.ia.srq_create(bench.pz, &attributes).unwrap();
    let (pz, data) = (Some(bench.pz), Some(bench.data));
    let shared = bench
        .ia
        .ep_create_with_srq(pz, data, data, None, srq, &SMALL)
        .unwrap();
    let told = |ep, fields, attributes| {
        let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        bench.device.take_calls();
        let wanted = EpParam {
            attributes,
            ..before
        };
        bench.ia.ep_modify(ep, fields, &wanted).unwrap();
        let calls = bench.device.take_calls().into_iter();
        let marks = calls.filter_map(|call| match call {
            Call::HighWatermarks(_, soft, hard) => Some((soft, hard)),
            _ => None,
        });
        marks.collect::<Vec<_>>()
    };
    let soft = |srq_soft_hw| EpAttributes {
        srq_soft_hw,
        max_message_size: 1000,
        ..SMALL
    };
    let (mark, other) = (EpFields::SRQ_SOFT_HW, EpFields::MAX_MESSAGE_SIZE);
    assert_eq!(told(shared, mark, soft(5)), [(Some(5), None)]);
    assert_eq!(told(shared, mark, soft(5)), []);
    // A change of another field keeps the watermarks of `ep_set_watermark`.
    bench.ia.ep_set_watermark(shared, 7, 8).unwrap();
    assert_eq!(told(shared, other, soft(5)), []);
    assert_eq!(told(shared, mark, soft(0)), [(None, Some(8))]);
    let alone = bench.endpoint();
    assert_eq!(told(alone, mark, soft(5)), []);
}
