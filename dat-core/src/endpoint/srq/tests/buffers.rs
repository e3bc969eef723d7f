//! Buffers of a shared receive queue: counts, checks, completions.

use super::*;

/// The example of the manual page, continued until the queue is full.
///
/// Spec: SRY-02, SRC-05, SRC-07, SRQR-05, SRQR-09, SRQR-26, SRQR-41
#[test]
fn counts_follow_each_buffer() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        assert_eq!(on.counts(), (3, 3));
        // The second buffer completes first.
        on.arrive(&on.consuming_endpoint, 1);
        assert_eq!(on.counts(), (2, 3));
        let event = on.ia.evd_dequeue(on.consuming_endpoint.evd).unwrap();
        assert!(matches!(
            event,
            Event::Dto(done) if done.cookie == 1 && done.ep == on.consuming_endpoint.ep
        ));
        assert_eq!(on.counts(), (2, 2));
        for cookie in 3..11 {
            on.post(cookie).unwrap();
        }
        assert_eq!(on.counts(), (10, 10));
        let (kind, subtype, cause) = refusal(on.post(11));
        assert_eq!((kind, subtype), EXHAUSTED);
        assert_eq!(cause, Cause::QueueFull);
        // Taken and completed buffers keep their records until they are dequeued.
        for _ in 0..10 {
            on.arrive(&on.consuming_endpoint, 0);
        }
        assert_eq!(on.counts(), (0, 10));
        assert!(on.post(12).is_err());
        on.ia.evd_dequeue(on.consuming_endpoint.evd).unwrap();
        on.post(13).unwrap();
        assert_eq!(on.counts(), (1, 10));
    });
}

/// Spec: SRQR-02, SRQR-03, SRQR-25, SRQR-27..29, SRQR-41, DTO-06
#[test]
fn buffers_are_checked_against_the_queue() {
    with_setting(|on| {
        let far = on.ia.pz_create().unwrap();
        let foreign = region(on.ia, far, MemoryPrivileges::ALL);
        let unwritable = region(on.ia, on.pz, MemoryPrivileges::LOCAL_READ);
        let post = |segments: &[LmrTriplet]| refusal(on.ia.srq_post_recv(on.srq, segments, 0));
        let good = segment(&on.lmr, 0, 1);
        let end = on.lmr.registered_size;
        assert_eq!(
            post(&[good, good, good]),
            (
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
                Cause::TooManySegments
            )
        );
        for (bad, refused) in [
            (
                segment(&on.lmr, end, 1),
                (
                    ErrorKind::InvalidParameter,
                    Subtype::InvalidArg3,
                    Cause::OutsideRegion,
                ),
            ),
            (
                segment(&foreign, 0, 1),
                (
                    ErrorKind::ProtectionViolation,
                    Subtype::ProtectionWrite,
                    Cause::ZoneMismatch,
                ),
            ),
            (
                segment(&unwritable, 0, 1),
                (
                    ErrorKind::PrivilegesViolation,
                    Subtype::PrivilegesWrite,
                    Cause::MissingPrivilege,
                ),
            ),
            (
                LmrTriplet { context: 0, ..good },
                (
                    ErrorKind::PrivilegesViolation,
                    Subtype::PrivilegesWrite,
                    Cause::UnknownContext,
                ),
            ),
        ] {
            assert_eq!(post(&[good, bad]), refused);
            let empty = LmrTriplet { length: 0, ..bad };
            assert_eq!(on.ia.srq_post_recv(on.srq, &[good, empty], 0), Ok(()));
        }
        assert_eq!(on.counts(), (4, 4));
        assert_eq!(on.ia.srq_post_recv(on.srq, &[], 0), Ok(()));
        assert_eq!(
            refusal(on.ia.srq_post_recv(SrqId::NULL, &[], 0)).1,
            Subtype::InvalidHandleSrq
        );
        assert_eq!(on.counts(), (5, 5));
    });
}

/// Spec: SRQR-37..40, SRQR-43
#[test]
fn one_endpoint_that_ends_leaves_the_others_their_buffers() {
    with_setting(|on| {
        let other = ConsumingEndpoint::new(on.ia, on.backend, on.pz, on.srq);
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        // A whole message, a message that is too long, and one that the end cut short.
        for (position, status) in [
            (0, DtoStatus::Success),
            (0, DtoStatus::LocalLength),
            (0, DtoStatus::Flushed),
        ] {
            assert!(on.backend.complete_shared(
                on.key(),
                position,
                on.consuming_endpoint.key,
                status,
                4
            ));
        }
        on.backend.break_pair(on.consuming_endpoint.key);
        let statuses: Vec<_> =
            core::iter::from_fn(|| on.ia.evd_dequeue(on.consuming_endpoint.evd).ok())
                .map(|event| match event {
                    Event::Dto(done) => (done.cookie, done.status),
                    event => panic!("{event:?}"),
                })
                .collect();
        assert_eq!(
            statuses,
            [
                (0, DtoStatus::Success),
                (1, DtoStatus::LocalLength),
                (2, DtoStatus::Flushed)
            ]
        );
        let state = |ep: EpId| {
            on.ia.shared.endpoints.made()[ep.index()]
                .main
                .with(|endpoint| endpoint.state)
        };
        assert_eq!(state(other.ep), EndpointState::Unconnected);
        // The remaining buffer is available to the other endpoint.
        assert_eq!(on.counts(), (1, 1));
        on.arrive(&other, 0);
        assert!(matches!(
            on.ia.evd_dequeue(other.evd),
            Ok(Event::Dto(done)) if done.cookie == 3 && done.ep == other.ep
        ));
    });
}

/// Spec: SRQR-22, SRQR-42, SRF-02
#[test]
fn a_failed_queue_takes_buffers_and_gives_them_back_at_the_end() {
    with_setting(|on| {
        on.post(0).unwrap();
        on.ia.srq_set_lw(on.srq, 1).unwrap();
        let failed = ControlEvent::SharedReceiveFailed {
            queue: on.srq.handle().to_raw(),
        };
        // A repeated failure is reported once; after a failure, the watermark raises no event.
        for event in [
            failed.clone(),
            failed,
            ControlEvent::SharedReceiveLimit {
                queue: on.srq.handle().to_raw(),
            },
            ControlEvent::SharedReceiveFailed {
                queue: on.pz.handle().to_raw(),
            },
        ] {
            on.backend.push_control(event);
        }
        on.ia.progress(Instant::ZERO);
        assert_eq!(
            on.ia.evd_dequeue(on.ia.async_evd()),
            Ok(Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: on.srq.handle(),
                reason: REASON_PRIMARY,
            })
        );
        assert!(on.ia.evd_dequeue(on.ia.async_evd()).is_err());
        on.post(1).unwrap();
        let param = on.ia.srq_query(on.srq, SrqFields::all()).unwrap();
        assert_eq!(param.state, SrqState::Error);
        assert_eq!(param.outstanding, 2);
        on.ia.ep_free(on.consuming_endpoint.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        assert!(on.ia.evd_dequeue(on.consuming_endpoint.evd).is_err());
        // The next queue in the slot is operational.
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        let param = on.ia.srq_query(next, SrqFields::STATE).unwrap();
        assert_eq!(param.state, SrqState::Operational);
    });
}

/// Late completions free their records and reach no later queue.
///
/// A completion of a freed endpoint frees its record. One of a freed queue does not reach the next
/// queue in the slot.
///
/// Spec: SRF-02, SRQR-41
#[test]
fn late_completions_do_no_harm() {
    with_setting(|on| {
        let other = ConsumingEndpoint::new(on.ia, on.backend, on.pz, on.srq);
        on.post(1).unwrap();
        on.post(2).unwrap();
        let late = on.backend.shared_posted(on.key());
        on.arrive(&on.consuming_endpoint, 0);
        on.ia.ep_free(on.consuming_endpoint.ep).unwrap();
        assert!(on.ia.evd_dequeue(on.consuming_endpoint.evd).is_err());
        assert_eq!(on.counts(), (1, 1));
        on.ia.ep_free(other.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        for cookie in 0..10 {
            on.ia.srq_post_recv(next, &[], cookie).unwrap();
        }
        for posted in late {
            on.backend.inject(
                other.evd.index() as u32,
                crate::memory::tests::stray(posted.work.token()),
            );
        }
        assert!(on.ia.evd_dequeue(other.evd).is_err());
        let param = on.ia.srq_query(next, SrqFields::all()).unwrap();
        assert_eq!((param.available, param.outstanding), (10, 10));
    });
}

/// A completion that names an endpoint on no shared queue is ignored.
///
/// It gives no event, and its record can safely become a buffer of the next queue.
///
/// Spec: SRF-02, SRQR-41, DTO-03
#[test]
fn only_an_endpoint_on_the_queue_takes_its_buffers() {
    with_setting(|on| {
        let evd = on.ia.evd_create(2, None, EvdFlags::DTO).unwrap();
        let attributes = EpAttributes {
            max_recv_dtos: 2,
            max_request_dtos: 0,
            ..EpAttributes::DEFAULT
        };
        let stranger = on
            .ia
            .ep_create(Some(on.pz), Some(evd), None, None, Some(&attributes))
            .unwrap();
        on.post(1).unwrap();
        let [posted] = &on.backend.shared_posted(on.key())[..] else {
            panic!("one buffer is posted");
        };
        on.backend.inject(
            evd.index() as u32,
            Completion {
                queue_pair: stranger.handle().to_raw(),
                ..crate::memory::tests::stray(posted.work.token())
            },
        );
        // Polls the completion.
        on.ia.ep_get_status(stranger).unwrap();
        on.ia.ep_free(on.consuming_endpoint.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        for cookie in 0..10 {
            on.ia.srq_post_recv(next, &[], cookie).unwrap();
        }
        let error = on.ia.evd_dequeue(evd).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QueueEmpty);
        let param = on.ia.srq_query(next, SrqFields::all()).unwrap();
        assert_eq!((param.available, param.outstanding), (10, 10));
    });
}

/// The device's count of available buffers takes precedence.
///
/// Only the device knows of lost buffers and of those that a message is arriving in.
///
/// Spec: SRY-02
#[cfg(feature = "std")]
#[test]
fn the_device_tells_what_can_be_taken() {
    with_setting(|on| {
        on.post(0).unwrap();
        on.post(1).unwrap();
        on.backend.forget_shared(on.key());
        assert_eq!(on.counts(), (0, 2));
    });
}

/// If the device cannot count, completed buffers are not available, dequeued or not.
///
/// This holds whatever fields the query selects.
///
/// Spec: SRY-02
#[test]
fn completed_buffers_are_not_available() {
    with_setting(|on| {
        on.backend.count_no_shared();
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        on.arrive(&on.consuming_endpoint, 1);
        let param = on.ia.srq_query(on.srq, SrqFields::AVAILABLE).unwrap();
        assert_eq!(param.available, 2);
        on.arrive(&on.consuming_endpoint, 0);
        let param = on.ia.srq_query(on.srq, SrqFields::OUTSTANDING).unwrap();
        assert_eq!((param.available, param.outstanding), (1, 3));
    });
}
