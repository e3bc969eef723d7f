//! Creating and freeing shared receive queues.

use super::*;

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
        // Of 256 records, 192 are taken.
        ia.srq_free(ia.srq_create(pz, &large).unwrap()).unwrap();
        for _ in 0..6 {
            crate::record::allocate(
                &ia.shared.records,
                crate::record::Owner::Requests(crate::id::EpId::new(0, 1, 7.into())),
                10,
            );
        }
        assert_eq!(failure(), Cause::RecordsExhausted);
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
        on.ia.ep_free(on.consuming_endpoint.ep).unwrap();
        on.ia.srq_free(on.srq).unwrap();
        assert_eq!(on.backend.objects()[5], 0);
        // The buffers are returned without completions.
        assert!(on.ia.evd_dequeue(on.consuming_endpoint.evd).is_err());
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
        let first = ConsumingEndpoint::new(ia, &backend, pz, srq);
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

/// A queue references only the zone that it was created in, until it is freed.
///
/// Spec: SRC-01, SRF-02, PZF-02
#[test]
fn a_queue_holds_its_own_zone() {
    with_ia(|ia, _| {
        let first = ia.pz_create().unwrap();
        let own = ia.pz_create().unwrap();
        let srq = ia.srq_create(own, &SIZE).unwrap();
        assert_eq!(ia.srq_query(srq, SrqFields::PZ).unwrap().pz, own);
        assert_eq!(refusal(ia.pz_free(own)).1, Subtype::InvalidStatePzInUse);
        // Buffers must be in a region of the queue's zone.
        let near = region(ia, own, MemoryPrivileges::ALL);
        let far = region(ia, first, MemoryPrivileges::ALL);
        assert_eq!(ia.srq_post_recv(srq, &[segment(&near, 0, 1)], 0), Ok(()));
        assert_eq!(
            refusal(ia.srq_post_recv(srq, &[segment(&far, 0, 1)], 0)).0,
            ErrorKind::ProtectionViolation
        );
        for lmr in [near, far] {
            ia.lmr_free(lmr.lmr).unwrap();
        }
        ia.srq_free(srq).unwrap();
        ia.pz_free(own).unwrap();
        ia.pz_free(first).unwrap();
    });
}

/// A buffer that the device refuses uses no record.
///
/// Spec: SRQR-26, GEN-06
#[test]
fn a_buffer_that_the_device_refuses_keeps_no_place() {
    with_setting(|on| {
        for round in 0..20 {
            on.backend.refuse_next(BackendError::Resources);
            assert!(on.post(round).is_err());
        }
        assert_eq!(on.counts(), (0, 0));
        for cookie in 0..10 {
            on.post(cookie).unwrap();
        }
        assert_eq!(on.counts(), (10, 10));
    });
}
