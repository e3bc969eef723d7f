//! Tests of shared receive queues on the test device.

use std::vec::Vec;

use crate::Cause;
use crate::attributes::{EpAttributes, IaAttributes, ProviderAttributes, SrqAttributes};
use crate::backend::{BackendError, Completion, ControlEvent, QueuePairKey, SharedReceiveQueueKey};
use crate::error::{ErrorKind, Result, Subtype};
use crate::event::{AsyncEventKind, Event, REASON_LOW_WATERMARK, REASON_PRIMARY};
use crate::flags::{DtoStatus, EndpointState, EvdFlags, MemoryPrivileges, SrqFields, SrqState};
use crate::id::{EpId, EvdId, PzId, SrqId};
use crate::memory::tests::{TestIa, piece, refusal, region, with_backend, with_ia};
use crate::memory::{LmrCreated, LmrTriplet};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend};
use crate::time::Instant;

const SIZE: SrqAttributes = SrqAttributes {
    max_recv_dtos: 10,
    max_recv_iov: 2,
    low_watermark: 0,
};

/// An endpoint that takes from a shared queue, with a receive dispatcher of its own.
struct Taker {
    ep: EpId,
    key: QueuePairKey,
    evd: EvdId,
}

impl Taker {
    fn new(ia: &TestIa<'_>, backend: &TestBackend, pz: PzId, srq: SrqId) -> Self {
        let evd = ia.evd_create(2, None, EvdFlags::DTO).unwrap();
        let attributes = EpAttributes {
            max_request_dtos: 0,
            ..EpAttributes::DEFAULT
        };
        let ep = ia
            .ep_create_with_srq(Some(pz), Some(evd), None, None, srq, &attributes)
            .unwrap();
        let key = backend.pair(ep.handle().to_raw()).unwrap();
        Self { ep, key, evd }
    }
}

/// A shared queue with one endpoint and a region.
struct Setting<'a, 's> {
    ia: &'a TestIa<'s>,
    backend: &'a TestBackend,
    pz: PzId,
    lmr: LmrCreated,
    srq: SrqId,
    taker: Taker,
}

impl Setting<'_, '_> {
    fn post(&self, cookie: u64) -> Result<()> {
        self.ia
            .srq_post_recv(self.srq, &[piece(&self.lmr, 0, 16)], cookie)
    }

    fn key(&self) -> SharedReceiveQueueKey {
        key_of(self.ia, self.srq)
    }

    /// An endpoint takes the buffer at a position and is done with it.
    fn arrive(&self, taker: &Taker, position: usize) {
        assert!(self.backend.complete_shared(
            self.key(),
            position,
            taker.key,
            DtoStatus::Success,
            4
        ));
    }

    /// (available, outstanding) as a query tells them.
    fn counts(&self) -> (i32, i32) {
        let mask = SrqFields::AVAILABLE | SrqFields::OUTSTANDING;
        let param = self.ia.srq_query(self.srq, mask).unwrap();
        (param.available, param.outstanding)
    }

    /// The event of the low watermark, if it came.
    fn alarm(&self) -> bool {
        match self.ia.evd_dequeue(self.ia.async_evd()) {
            Ok(event) => {
                assert_eq!(
                    event,
                    Event::Async {
                        kind: AsyncEventKind::EpBroken,
                        handle: self.srq.handle(),
                        reason: REASON_LOW_WATERMARK,
                    }
                );
                assert_eq!((event.number(), REASON_LOW_WATERMARK), (0x8003, 2));
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::QueueEmpty);
                false
            }
        }
    }
}

fn key_of(ia: &TestIa<'_>, srq: SrqId) -> SharedReceiveQueueKey {
    ia.shared.shared_receive_queues[srq.index()]
        .main
        .with(|queue| queue.key)
}

fn with_setting(test: impl FnOnce(Setting<'_, '_>)) {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let srq = ia.srq_create(pz, &SIZE).unwrap();
        test(Setting {
            ia,
            backend,
            pz,
            lmr: region(ia, pz, MemoryPrivileges::LOCAL_WRITE),
            srq,
            taker: Taker::new(ia, backend, pz, srq),
        });
    });
}

const EXHAUSTED: (ErrorKind, Subtype) = (ErrorKind::InsufficientResources, Subtype::ResourceSrq);

/// Spec: SRC-01, SRY-01
#[test]
fn a_new_queue_is_empty_and_as_large_as_asked() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let srq = ia.srq_create(pz, &SIZE).unwrap();
        assert_eq!(backend.objects()[5], 1);
        let param = ia.srq_query(srq, SrqFields::all()).unwrap();
        assert_eq!((param.ia, param.pz), (ia.handle(), pz));
        assert_eq!(param.state, SrqState::Operational);
        assert_eq!((param.max_recv_dtos, param.max_recv_iov), (10, 2));
        assert_eq!(param.low_watermark, 0);
        assert_eq!((param.available, param.outstanding), (0, 0));
        assert_eq!(
            refusal(ia.srq_query(srq, SrqFields::from_bits_retain(0x100))),
            (
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
                Cause::UnknownMask
            )
        );
    });
}

/// Spec: SRC-02, SRC-03, SRC-06, GEN-07
#[test]
fn sizes_and_watermark_are_checked() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let asked = |max_recv_dtos, max_recv_iov, low_watermark| {
            ia.srq_create(
                pz,
                &SrqAttributes {
                    max_recv_dtos,
                    max_recv_iov,
                    low_watermark,
                },
            )
        };
        for (dtos, iov, low, cause) in [
            (0, 1, 0, Cause::ZeroCount),
            (1, 0, 0, Cause::ZeroCount),
            (-1, 1, 0, Cause::NegativeCount),
            (1, i32::MIN, 0, Cause::NegativeCount),
            (65, 1, 0, Cause::AboveLimit),
            (i32::MAX, 1, 0, Cause::AboveLimit),
            (1, 5, 0, Cause::AboveLimit),
            (1, 1, 1, Cause::UnknownValue),
            (1, 1, -1, Cause::UnknownValue),
        ] {
            assert_eq!(
                refusal(asked(dtos, iov, low)),
                (ErrorKind::InvalidParameter, Subtype::InvalidArg3, cause)
            );
        }
        assert_eq!(backend.objects()[5], 0);
        for (dtos, iov) in [(1, 1), (64, 4)] {
            ia.srq_free(asked(dtos, iov, 0).unwrap()).unwrap();
        }
    });
}

/// Spec: SRC-06, SRF-02, PZF-02, GEN-03, GEN-06
#[test]
fn queues_run_out_in_table_records_and_device() {
    with_ia(|ia, backend| {
        assert_eq!(
            refusal(ia.srq_create(PzId::NULL, &SIZE)),
            (
                ErrorKind::InvalidHandle,
                Subtype::InvalidHandlePz,
                Cause::NullHandle
            )
        );
        let pz = ia.pz_create().unwrap();
        let failure = || {
            let (kind, subtype, cause) = refusal(ia.srq_create(pz, &SIZE));
            assert_eq!((kind, subtype), EXHAUSTED);
            cause
        };
        backend.refuse_next(BackendError::Resources);
        assert_eq!(failure(), Cause::DeviceRefused);
        let large = SrqAttributes {
            max_recv_dtos: 64,
            ..SIZE
        };
        let three: Vec<_> = (0..3).map(|_| ia.srq_create(pz, &large).unwrap()).collect();
        let small = ia.srq_create(pz, &SIZE).unwrap();
        assert_eq!(failure(), Cause::TableFull);
        ia.srq_free(small).unwrap();
        assert_eq!(refusal(ia.pz_free(pz)).1, Subtype::InvalidStatePzInUse);
        // Of 256 records 192 are taken.
        ia.srq_free(ia.srq_create(pz, &large).unwrap()).unwrap();
        for _ in 0..6 {
            crate::record::allocate(ia.shared.records, crate::record::Owner::Requests(7), 10);
        }
        assert_eq!(failure(), Cause::StorageExhausted);
        for srq in three {
            ia.srq_free(srq).unwrap();
        }
        assert_eq!(backend.objects()[5], 0);
        ia.pz_free(pz).unwrap();
    });
}

/// Spec: SRC-06
#[test]
fn a_provider_without_shared_queues_says_so() {
    let backend = TestBackend::new(
        IA_ATTRIBUTES,
        ProviderAttributes {
            srq_supported: false,
            ..PROVIDER_ATTRIBUTES
        },
    );
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        assert_eq!(
            refusal(ia.srq_create(pz, &SIZE)).0,
            ErrorKind::ModelNotSupported
        );
    });
}

/// Spec: SRF-01, SRF-02, GEN-03, GEN-15
#[test]
fn a_queue_is_freed_with_its_buffers_but_not_under_an_endpoint() {
    with_setting(|on| {
        on.post(1).unwrap();
        on.post(2).unwrap();
        assert_eq!(
            refusal(on.ia.srq_free(on.srq)),
            (
                ErrorKind::InvalidState,
                Subtype::InvalidStateSrqInUse,
                Cause::StillReferenced
            )
        );
        assert_eq!(on.counts(), (2, 2));
        on.ia.ep_free(on.taker.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        assert_eq!(on.backend.objects()[5], 0);
        // Given back without completion.
        assert!(on.ia.evd_dequeue(on.taker.evd).is_err());
        for (srq, cause) in [
            (on.srq, Cause::Stale),
            (SrqId::NULL, Cause::NullHandle),
            (SrqId::from_handle(on.pz.handle()), Cause::WrongKind),
        ] {
            let refused = (ErrorKind::InvalidHandle, Subtype::InvalidHandleSrq, cause);
            assert_eq!(refusal(on.ia.srq_free(srq)), refused);
            assert_eq!(refusal(on.ia.srq_resize(srq, -1)), refused);
            assert_eq!(refusal(on.ia.srq_set_lw(srq, -1)), refused);
            assert_eq!(
                refusal(on.ia.srq_query(srq, SrqFields::from_bits_retain(!0))),
                refused
            );
        }
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        assert_eq!(next.index(), on.srq.index());
        assert_ne!(next, on.srq);
    });
}

/// The example of the page, and on to the end.
///
/// Spec: SRY-02, SRC-05, SRC-07, SRQR-05, SRQR-09, SRQR-26, SRQR-41
#[test]
fn counts_follow_each_buffer() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        assert_eq!(on.counts(), (3, 3));
        // Not the first one posted.
        on.arrive(&on.taker, 1);
        assert_eq!(on.counts(), (2, 3));
        let event = on.ia.evd_dequeue(on.taker.evd).unwrap();
        assert!(matches!(
            event,
            Event::Dto(done) if done.cookie == 1 && done.ep == on.taker.ep
        ));
        assert_eq!(on.counts(), (2, 2));
        for cookie in 3..11 {
            on.post(cookie).unwrap();
        }
        assert_eq!(on.counts(), (10, 10));
        let (kind, subtype, cause) = refusal(on.post(11));
        assert_eq!((kind, subtype), EXHAUSTED);
        assert_eq!(cause, Cause::QueueFull);
        // Taken and even completed buffers keep their places until dequeued.
        for _ in 0..10 {
            on.arrive(&on.taker, 0);
        }
        assert_eq!(on.counts(), (0, 10));
        assert!(on.post(12).is_err());
        on.ia.evd_dequeue(on.taker.evd).unwrap();
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
        let post = |pieces: &[LmrTriplet]| refusal(on.ia.srq_post_recv(on.srq, pieces, 0));
        let good = piece(&on.lmr, 0, 1);
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
                piece(&on.lmr, end, 1),
                (
                    ErrorKind::InvalidParameter,
                    Subtype::InvalidArg3,
                    Cause::OutsideRegion,
                ),
            ),
            (
                piece(&foreign, 0, 1),
                (
                    ErrorKind::ProtectionViolation,
                    Subtype::ProtectionWrite,
                    Cause::ZoneMismatch,
                ),
            ),
            (
                piece(&unwritable, 0, 1),
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
                    Cause::StaleContext,
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
        let other = Taker::new(on.ia, on.backend, on.pz, on.srq);
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        // A message that is too long, one that arrived whole, one that was cut short by the end.
        for (position, status) in [
            (0, DtoStatus::Success),
            (0, DtoStatus::LocalLength),
            (0, DtoStatus::Flushed),
        ] {
            assert!(
                on.backend
                    .complete_shared(on.key(), position, on.taker.key, status, 4)
            );
        }
        on.backend.break_pair(on.taker.key);
        let statuses: Vec<_> = core::iter::from_fn(|| on.ia.evd_dequeue(on.taker.evd).ok())
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
            on.ia.shared.endpoints[ep.index()]
                .main
                .with(|endpoint| endpoint.state)
        };
        assert_eq!(state(other.ep), EndpointState::Unconnected);
        // The buffer that is left is still there for the other one.
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
        // Told once, however often the device says it, and the watermark is not passed any more.
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
        on.ia.ep_free(on.taker.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        assert!(on.ia.evd_dequeue(on.taker.evd).is_err());
        // The next one in its slot is sound.
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        let param = on.ia.srq_query(next, SrqFields::STATE).unwrap();
        assert_eq!(param.state, SrqState::Operational);
    });
}

/// A completion of an endpoint that is gone gives the place back, and none of a queue that is gone
/// reaches the next one in its slot.
///
/// Spec: SRF-02, SRQR-41
#[test]
fn late_completions_do_no_harm() {
    with_setting(|on| {
        let other = Taker::new(on.ia, on.backend, on.pz, on.srq);
        on.post(1).unwrap();
        on.post(2).unwrap();
        let late = on.backend.shared_posted(on.key());
        on.arrive(&on.taker, 0);
        on.ia.ep_free(on.taker.ep).unwrap();
        assert!(on.ia.evd_dequeue(on.taker.evd).is_err());
        assert_eq!(on.counts(), (1, 1));
        on.ia.ep_free(other.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        let next = on.ia.srq_create(on.pz, &SIZE).unwrap();
        for cookie in 0..10 {
            on.ia.srq_post_recv(next, &[], cookie).unwrap();
        }
        for posted in late {
            on.backend.inject(
                other.evd.index() as u16,
                crate::memory::tests::stray(posted.work.token()),
            );
        }
        assert!(on.ia.evd_dequeue(other.evd).is_err());
        let param = on.ia.srq_query(next, SrqFields::all()).unwrap();
        assert_eq!((param.available, param.outstanding), (10, 10));
    });
}

/// A device that names an endpoint which does not take from the queue completes nothing: no event,
/// and no record that is a buffer of the next queue by the time the event would be dequeued.
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
            evd.index() as u16,
            Completion {
                queue_pair: stranger.handle().to_raw(),
                ..crate::memory::tests::stray(posted.work.token())
            },
        );
        // The completion is polled, whatever becomes of it.
        on.ia.ep_get_status(stranger).unwrap();
        on.ia.ep_free(on.taker.ep).unwrap();
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

/// Spec: SRZ-01, SRZ-04, DTO-13
#[test]
fn a_queue_grows_with_its_buffers_and_its_dispatchers() {
    with_setting(|on| {
        let other = Taker::new(on.ia, on.backend, on.pz, on.srq);
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
        let number = |taker: &Taker| taker.evd.index() as u16;
        assert_eq!(depths, [(number(&on.taker), 20), (number(&other), 20)]);
        let param = on.ia.srq_query(on.srq, SrqFields::all()).unwrap();
        assert_eq!((param.max_recv_dtos, param.outstanding), (20, 10));
        for cookie in 10..20 {
            on.post(cookie).unwrap();
        }
        assert!(on.post(20).is_err());
        // Every buffer may complete on one endpoint.
        for _ in 0..20 {
            on.arrive(&other, 0);
        }
        for cookie in 0..20 {
            assert!(matches!(
                on.ia.evd_dequeue(other.evd),
                Ok(Event::Dto(done)) if done.cookie == cookie
            ));
        }
        // Freed endpoints take the places along that they have by now.
        on.ia.ep_free(other.ep).unwrap();
        on.ia.ep_free(on.taker.ep).unwrap();
        for taker in [&other, &on.taker] {
            let places = on.ia.shared.event_dispatchers[taker.evd.index()]
                .queue
                .with(|queue| queue.places);
            assert_eq!(places, 0);
            on.ia.evd_free(taker.evd).unwrap();
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
        on.arrive(&on.taker, 0);
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
        on.ia.evd_dequeue(on.taker.evd).unwrap();
        assert_eq!(on.counts(), (3, 3));
        on.post(5).unwrap();
        assert!(on.post(6).is_err());
        on.ia.srq_set_lw(on.srq, 4).unwrap();
        for _ in 0..3 {
            on.arrive(&on.taker, 0);
            on.ia.evd_dequeue(on.taker.evd).unwrap();
        }
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 3)),
            in_use(Cause::BelowWatermark)
        );
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        on.ia.srq_resize(on.srq, 1).unwrap();
        // What was given up can be used elsewhere: of 256 records one is the queue's.
        let all = crate::record::allocate_list(
            on.ia.shared.records,
            crate::record::Owner::Requests(7),
            255,
            crate::record::NO_RECORD,
        );
        assert!(all.is_some());
    });
}

/// Spec: SRZ-02, SRZ-03, SRZ-04, GEN-06, GEN-07
#[test]
fn refused_resizes_change_nothing() {
    with_setting(|on| {
        let other = Taker::new(on.ia, on.backend, on.pz, on.srq);
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
        let places = |taker: &Taker| {
            on.ia.shared.event_dispatchers[taker.evd.index()]
                .queue
                .with(|queue| queue.places)
        };
        // The first dispatcher grows and the second cannot.
        on.backend.take_calls();
        on.backend.refuse_next(BackendError::Resources);
        assert_eq!(
            refusal(on.ia.srq_resize(on.srq, 20)).0,
            ErrorKind::InsufficientResources
        );
        assert_eq!((places(&on.taker), places(&other)), (10, 10));
        let size = || {
            on.ia
                .srq_query(on.srq, SrqFields::MAX_RECV_DTO)
                .unwrap()
                .max_recv_dtos
        };
        assert_eq!(size(), 10);
        // A device that cannot shrink makes no error of it.
        on.backend.refuse_next(BackendError::NotSupported);
        on.ia.srq_resize(on.srq, 5).unwrap();
        assert_eq!((size(), places(&other)), (10, 10));
        on.ia.srq_resize(on.srq, 10).unwrap();
        for cookie in 0..10 {
            on.post(cookie).unwrap();
        }
        assert!(on.post(10).is_err());
    });
}

/// Spec: SRL-01..04
#[test]
fn the_low_watermark_fires_once_per_setting() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        on.backend.take_calls();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert_eq!(on.backend.take_calls(), [Call::ArmSharedLimit(on.key(), 3)]);
        assert!(!on.alarm());
        on.arrive(&on.taker, 0);
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // Once only, even if the device repeats itself.
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        // At once, because only two are left; and then it is disarmed.
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm());
        assert_eq!(
            on.backend.take_calls().last(),
            Some(&Call::ArmSharedLimit(on.key(), 0))
        );
        on.post(9).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(!on.alarm());
        let param = on.ia.srq_query(on.srq, SrqFields::LOW_WATERMARK).unwrap();
        assert_eq!(param.low_watermark, 3);
    });
}

/// What the device told of an earlier setting and nobody took in yet does not use the next one up.
///
/// Spec: SRL-02
#[test]
fn a_late_alarm_leaves_the_next_setting_armed() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        // It is on its way; meanwhile there are enough buffers again, and the watermark is set anew.
        on.post(3).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm());
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}

/// An alarm that nobody took in before the watermark was turned off is told by that call, and never taken
/// for one of a later setting.
///
/// Spec: SRL-02, SRL-05
#[test]
fn a_late_alarm_is_not_one_of_a_later_setting() {
    with_setting(|on| {
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.ia.srq_set_lw(on.srq, 4).unwrap();
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        assert!(on.alarm());
        // Three are left, which is enough for the next setting.
        on.ia.srq_set_lw(on.srq, 2).unwrap();
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        for _ in 0..2 {
            on.arrive(&on.taker, 0);
        }
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // An earlier setting and the one that is set now, which is passed already: one event each.
        on.post(9).unwrap();
        on.post(10).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit);
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm() && on.alarm());
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}

/// Spec: SRL-05
#[test]
fn the_low_watermark_can_be_off_or_wrong_or_missing() {
    with_setting(|on| {
        for (low, cause) in [
            (-1, Cause::NegativeCount),
            (i32::MIN, Cause::NegativeCount),
            (11, Cause::AboveLimit),
        ] {
            assert_eq!(
                refusal(on.ia.srq_set_lw(on.srq, low)),
                (ErrorKind::InvalidParameter, Subtype::InvalidArg2, cause)
            );
        }
        on.ia.srq_set_lw(on.srq, 10).unwrap();
        assert!(on.alarm());
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        assert!(!on.alarm());
        on.backend.push_control(ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        });
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        on.backend.refuse_next(BackendError::NotSupported);
        assert_eq!(
            refusal(on.ia.srq_set_lw(on.srq, 1)).0,
            ErrorKind::ModelNotSupported
        );
        let param = on.ia.srq_query(on.srq, SrqFields::LOW_WATERMARK).unwrap();
        assert_eq!(param.low_watermark, 0);
        on.backend.refuse_next(BackendError::NotSupported);
        assert_eq!(on.ia.srq_set_lw(on.srq, 0), Ok(()));
    });
}

/// Spec: SRF-01, EPX-01
#[test]
fn the_adapter_limits_endpoints_on_a_queue() {
    let backend = TestBackend::new(
        IaAttributes {
            max_ep_per_srq: 1,
            ..IA_ATTRIBUTES
        },
        PROVIDER_ATTRIBUTES,
    );
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        let srq = ia.srq_create(pz, &SIZE).unwrap();
        let first = Taker::new(ia, &backend, pz, srq);
        let attributes = EpAttributes {
            max_request_dtos: 0,
            ..EpAttributes::DEFAULT
        };
        let second =
            || ia.ep_create_with_srq(Some(pz), Some(first.evd), None, None, srq, &attributes);
        let (kind, subtype, cause) = refusal(second());
        assert_eq!((kind, subtype), EXHAUSTED);
        assert_eq!(cause, Cause::AboveLimit);
        ia.ep_free(first.ep).unwrap();
        second().unwrap();
    });
}
