//! Resizing shared receive queues.

use super::*;
use crate::testing::fixture::has_records;

/// Spec: SRZ-01, SRZ-04, DTO-13
#[test]
fn a_queue_grows_with_its_buffers_and_its_dispatchers() {
    with_setting(|on| {
        let other = ConsumingEndpoint::new(on.ia, on.backend, on.pz, on.srq);
        for cookie in 0..10 {
            on.post(cookie).unwrap();
        }
        on.backend.take_calls();
        on.ia.srq_resize(on.srq, 20).unwrap();
        let depths: Vec<_> = on
            .backend
            .take_calls()
            .into_iter()
            .filter_map(|call| match call {
                Call::ResizeCompletionQueue { number, depth } => Some((number, depth)),
                _ => None,
            })
            .collect();
        let number = |consuming_endpoint: &ConsumingEndpoint| consuming_endpoint.evd.index() as u32;
        assert_eq!(
            depths,
            [(number(&other), 20), (number(&on.consuming_endpoint), 20)]
        );
        let param = on.ia.srq_query(on.srq, SrqFields::all()).unwrap();
        assert_eq!((param.max_recv_dtos, param.outstanding), (20, 10));
        for cookie in 10..20 {
            on.post(cookie).unwrap();
        }
        assert!(on.post(20).is_err());
        // All buffers may complete on one endpoint.
        for _ in 0..20 {
            on.arrive(&other, 0);
        }
        for cookie in 0..20 {
            assert!(matches!(
                on.ia.evd_dequeue(other.evd),
                Ok(Event::Dto(done)) if done.cookie == cookie
            ));
        }
        // A freed endpoint releases the capacity of the resized queue.
        on.ia.ep_free(other.ep).unwrap();
        on.ia.ep_free(on.consuming_endpoint.ep).unwrap();
        for consuming_endpoint in [&other, &on.consuming_endpoint] {
            let capacity = on.ia.shared.event_dispatchers.made()[consuming_endpoint.evd.index()]
                .queue
                .with(|queue| queue.capacity);
            assert_eq!(capacity, 0);
            on.ia.evd_free(consuming_endpoint.evd).unwrap();
        }
    });
}

/// Spec: SRZ-02, SRZ-03, SRZ-04
#[test]
fn a_queue_shrinks_down_to_what_is_outstanding() {
    with_setting(|on| {
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        on.arrive(&on.consuming_endpoint, 0);
        let in_use = |cause| {
            (
                ErrorKind::InvalidState,
                Subtype::InvalidStateSrqInUse,
                cause,
            )
        };
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 3)),
            in_use(Cause::BelowOutstanding)
        );
        on.ia.srq_resize(on.srq, 4).unwrap();
        assert!(on.post(4).is_err());
        on.ia.evd_dequeue(on.consuming_endpoint.evd).unwrap();
        assert_eq!(on.counts(), (3, 3));
        on.post(5).unwrap();
        assert!(on.post(6).is_err());
        on.ia.srq_set_lw(on.srq, 4).unwrap();
        for _ in 0..3 {
            on.arrive(&on.consuming_endpoint, 0);
            on.ia.evd_dequeue(on.consuming_endpoint.evd).unwrap();
        }
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 3)),
            in_use(Cause::BelowWatermark)
        );
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        on.ia.srq_resize(on.srq, 1).unwrap();
        // The released records are free: of 256, the queue owns one.
        assert!(has_records(on.ia, 255));
    });
}

/// Spec: SRZ-02, SRZ-03, SRZ-04, GEN-06, GEN-07
#[test]
fn refused_resizes_change_nothing() {
    with_setting(|on| {
        let other = ConsumingEndpoint::new(on.ia, on.backend, on.pz, on.srq);
        for (size, cause) in [
            (0, Cause::ZeroCount),
            (-1, Cause::NegativeCount),
            (i32::MIN, Cause::NegativeCount),
            (65, Cause::AboveLimit),
        ] {
            assert_eq!(
                refusal(on.ia.srq_resize(on.srq, size)),
                (ErrorKind::InvalidParameter, Subtype::InvalidArg2, cause)
            );
        }
        let capacity = |consuming_endpoint: &ConsumingEndpoint| {
            on.ia.shared.event_dispatchers.made()[consuming_endpoint.evd.index()]
                .queue
                .with(|queue| queue.capacity)
        };
        // The first dispatcher grows, the second is refused.
        on.backend.take_calls();
        on.backend.refuse_next(BackendError::Resources);
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 20)).0,
            ErrorKind::InsufficientResources
        );
        assert_eq!(
            (capacity(&on.consuming_endpoint), capacity(&other)),
            (10, 10)
        );
        let size = || {
            on.ia
                .srq_query(on.srq, SrqFields::MAX_RECV_DTO)
                .unwrap()
                .max_recv_dtos
        };
        assert_eq!(size(), 10);
        // A device that cannot shrink the queue causes no error.
        on.backend.refuse_next(BackendError::NotSupported);
        on.ia.srq_resize(on.srq, 5).unwrap();
        assert_eq!((size(), capacity(&other)), (10, 10));
        on.ia.srq_resize(on.srq, 10).unwrap();
        for cookie in 0..10 {
            on.post(cookie).unwrap();
        }
        assert!(on.post(10).is_err());
    });
}

/// A resize to the present size does not call the device.
///
/// Spec: SRZ-01
#[test]
fn the_size_that_it_has_asks_nothing_of_the_device() {
    with_setting(|on| {
        on.backend.refuse_next(BackendError::Resources);
        assert_eq!(on.ia.srq_resize(on.srq, 10), Ok(()));
        // The refusal applies to the next call to the device.
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 11)).0,
            ErrorKind::InsufficientResources
        );
    });
}

/// A queue shrinks to its watermark, not below; more outstanding buffers are reported first.
///
/// Spec: SRZ-02
#[test]
fn a_queue_may_be_as_small_as_its_watermark() {
    with_setting(|on| {
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        on.ia.srq_set_lw(on.srq, 4).unwrap();
        let refused = refusal(on.ia.srq_resize(on.srq, 3));
        assert_eq!(refused.2, Cause::BelowOutstanding);
        on.ia.srq_resize(on.srq, 4).unwrap();
        let param = on.ia.srq_query(on.srq, SrqFields::all()).unwrap();
        assert_eq!((param.max_recv_dtos, param.low_watermark), (4, 4));
    });
}

/// A device that cannot shrink leaves the queue unchanged; a failed device is an error.
///
/// Spec: SRZ-03, GEN-06
#[test]
fn a_device_that_is_gone_shrinks_nothing() {
    with_setting(|on| {
        on.backend.refuse_next(BackendError::Device);
        let refused = refusal(on.ia.srq_resize(on.srq, 5));
        assert_eq!(
            (refused.0, refused.2),
            (ErrorKind::InternalError, Cause::DeviceGone)
        );
        let param = on.ia.srq_query(on.srq, SrqFields::all()).unwrap();
        assert_eq!(param.max_recv_dtos, 10);
        for cookie in 0..10 {
            on.post(cookie).unwrap();
        }
        assert!(on.post(10).is_err());
    });
}
