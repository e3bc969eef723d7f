//! Refused binds, which leave no trace.

use super::bind::{PEERS, Setting, refused_as, with_setting};
use super::*;
use crate::endpoint::EpParam;
use crate::flags::EpFields;
use crate::id::{INDEX_BITS, RmrId};
use crate::testing::fixture::Bench;

/// Spec: RMB-07..09, RMB-29, RMB-43, DTO-05
#[test]
fn flags_are_those_of_a_request() {
    for (configured, unsignalled) in [
        (CompletionFlags::empty(), false),
        (CompletionFlags::UNSIGNALLED, true),
    ] {
        with_ia(|ia, backend| {
            let pz = ia.pz_create().unwrap();
            let on = Setting {
                ia,
                backend,
                pz,
                lmr: region(ia, pz, MemoryPrivileges::ALL),
                rmr: ia.rmr_create(pz).unwrap(),
                endpoint: TestEndpoint::with_flags(ia, 0, pz, configured),
            };
            for bit in (0..32).map(|shift| CompletionFlags::from_bits_retain(1 << shift)) {
                let outcome = on.bind(&on.whole(), bit);
                let legal = CompletionFlags::MANDATORY.contains(bit)
                    && (unsignalled || bit != CompletionFlags::UNSIGNALLED);
                if legal {
                    assert!(outcome.is_ok(), "{bit:?}");
                    on.complete(DtoStatus::Success);
                    continue;
                }
                let cause = if bit == CompletionFlags::UNSIGNALLED {
                    Cause::UnsignalledNotConfigured
                } else {
                    Cause::UnknownFlags
                };
                assert_eq!(
                    refusal(outcome),
                    refused_as(ErrorKind::InvalidParameter, Subtype::InvalidArg6, cause)
                );
            }
        });
    }
}

/// Spec: RMB-25, RMB-26, RMB-39, RMB-45
#[test]
fn remote_rights_need_the_local_ones_and_nothing_else() {
    with_setting(|on| {
        for has in privilege_sets() {
            let lmr = region(on.ia, on.pz, has);
            for wanted in privilege_sets() {
                let outcome = on.bind_for(&segment(&lmr, 0, 8), wanted, CompletionFlags::empty());
                let reads = wanted.contains(MemoryPrivileges::REMOTE_READ);
                let writes = wanted.contains(MemoryPrivileges::REMOTE_WRITE);
                let missing = if reads && !has.contains(MemoryPrivileges::LOCAL_READ) {
                    Some(Subtype::PrivilegesRead)
                } else if writes && !has.contains(MemoryPrivileges::LOCAL_WRITE) {
                    Some(Subtype::PrivilegesWrite)
                } else {
                    None
                };
                match missing {
                    None => {
                        assert!(outcome.is_ok(), "{has:?} {wanted:?}");
                        on.complete(DtoStatus::Success);
                    }
                    Some(subtype) => assert_eq!(
                        refusal(outcome),
                        refused_as(
                            ErrorKind::PrivilegesViolation,
                            subtype,
                            Cause::MissingPrivilege
                        )
                    ),
                }
            }
            let nothing = LmrTriplet::default();
            on.bind(&nothing, CompletionFlags::empty()).unwrap();
            on.complete(DtoStatus::Success);
            on.ia.lmr_free(lmr.lmr).unwrap();
        }
    });
}

/// Spec: RMB-43, LMC-07
#[test]
fn privilege_bits_outside_the_four_are_refused() {
    with_setting(|on| {
        for bit in (0..32).map(|shift| 1_u32 << shift) {
            if bit & 0x33 != 0 {
                continue;
            }
            let wanted = MemoryPrivileges::from_bits_retain(bit);
            for part in [on.whole(), LmrTriplet::default()] {
                assert_eq!(
                    refusal(on.bind_for(&part, wanted, CompletionFlags::empty())),
                    refused_as(
                        ErrorKind::InvalidParameter,
                        Subtype::InvalidArg3,
                        Cause::UnknownFlags
                    )
                );
            }
        }
        on.untouched();
    });
}

/// Spec: RMB-02, RMB-35
#[test]
fn segments_end_where_the_region_ends() {
    with_setting(|on| {
        let all = LENGTH as u64;
        for (offset, length) in [(0, all), (all - 1, 1), (0, 1)] {
            let part = segment(&on.lmr, offset, length);
            on.bind(&part, CompletionFlags::empty()).unwrap();
            on.complete(DtoStatus::Success);
            assert_eq!(on.bound().map(|bound| bound.lmr_triplet), Some(part));
        }
        on.bind(&LmrTriplet::default(), CompletionFlags::empty())
            .unwrap();
        on.complete(DtoStatus::Success);
        for (offset, length, cause) in [
            (0, all + 1, Cause::OutsideRegion),
            (all, 1, Cause::OutsideRegion),
            (u64::MAX, 1, Cause::OutsideRegion),
            (u64::MAX, all, Cause::OutsideRegion),
            (1, u64::MAX, Cause::AddressOverflow),
            (u64::MAX - BASE as u64, 1, Cause::AddressOverflow),
        ] {
            assert_eq!(
                refusal(on.bind(&segment(&on.lmr, offset, length), CompletionFlags::empty())),
                refused_as(ErrorKind::InvalidParameter, Subtype::InvalidArg2, cause)
            );
        }
        on.untouched();
    });
}

/// Spec: RMB-39, RMB-41
#[test]
fn unknown_and_stale_contexts_are_privilege_violations() {
    with_setting(|on| {
        let gone = region(on.ia, on.pz, MemoryPrivileges::ALL);
        on.ia.lmr_free(gone.lmr).unwrap();
        for (context, cause) in [
            (gone.lmr_context, Cause::StaleContext),
            (0, Cause::UnknownContext),
            (
                on.lmr.lmr_context.wrapping_add(1 << INDEX_BITS),
                Cause::StaleContext,
            ),
            ((1 << INDEX_BITS) + 6, Cause::UnknownContext),
            (6, Cause::UnknownContext),
            (u32::MAX, Cause::UnknownContext),
        ] {
            let part = LmrTriplet {
                context,
                ..on.whole()
            };
            assert_eq!(
                refusal(on.bind(&part, CompletionFlags::empty())),
                refused_as(
                    ErrorKind::PrivilegesViolation,
                    Subtype::PrivilegesRead,
                    cause
                )
            );
            let writes = MemoryPrivileges::REMOTE_WRITE;
            assert_eq!(
                refusal(on.bind_for(&part, writes, CompletionFlags::empty())).1,
                Subtype::PrivilegesWrite
            );
        }
        on.untouched();
    });
}

/// Spec: RMB-40, RMB-41, LMC-08
#[test]
fn all_three_are_in_one_zone() {
    with_setting(|on| {
        let far = on.ia.pz_create().unwrap();
        let far_lmr = region(on.ia, far, MemoryPrivileges::ALL);
        let far_rmr = on.ia.rmr_create(far).unwrap();
        let far_endpoint = TestEndpoint::new(on.ia, 1, far);
        let near_and_far = |near, far| [(near, false), (far, true)];
        for (lmr, lmr_far) in near_and_far(on.lmr, far_lmr) {
            for (rmr, rmr_far) in [(on.rmr, false), (far_rmr, true)] {
                for (endpoint, ep_far) in [(&on.endpoint, false), (&far_endpoint, true)] {
                    let bind = |part: &LmrTriplet| {
                        on.ia
                            .rmr_bind(rmr, part, PEERS, endpoint.ep, 0, CompletionFlags::empty())
                    };
                    let mismatch = refused_as(
                        ErrorKind::ProtectionViolation,
                        Subtype::ProtectionRead,
                        Cause::ZoneMismatch,
                    );
                    let outcome = bind(&segment(&lmr, 0, 8));
                    if lmr_far == rmr_far && rmr_far == ep_far {
                        assert!(outcome.is_ok());
                        endpoint.complete(on.ia, on.backend, DtoStatus::Success);
                    } else {
                        assert_eq!(refusal(outcome), mismatch);
                    }
                    // An unbind names no local region.
                    let outcome = bind(&LmrTriplet::default());
                    if rmr_far == ep_far {
                        assert!(outcome.is_ok());
                        endpoint.complete(on.ia, on.backend, DtoStatus::Success);
                    } else {
                        assert_eq!(refusal(outcome), mismatch);
                    }
                }
            }
        }
    });
}

/// Spec: RMB-36, GEN-03
#[test]
fn handles_are_checked_first_and_in_order() {
    with_setting(|on| {
        let bind = |rmr, ep| {
            refusal(on.ia.rmr_bind(
                rmr,
                &LmrTriplet {
                    length: u64::MAX,
                    ..LmrTriplet::default()
                },
                MemoryPrivileges::from_bits_retain(u32::MAX),
                ep,
                0,
                CompletionFlags::from_bits_retain(u32::MAX),
            ))
        };
        let rmr = |cause| refused_as(ErrorKind::InvalidHandle, Subtype::InvalidHandleRmr, cause);
        let ep = |cause| refused_as(ErrorKind::InvalidHandle, Subtype::InvalidHandleEp, cause);
        let nowhere = EpId::new(on.ia.shared.instance, 1, 999.into());
        let gone = on.ia.rmr_create(on.pz).unwrap();
        on.ia.rmr_free(gone).unwrap();
        assert_eq!(bind(RmrId::NULL, nowhere), rmr(Cause::NullHandle));
        assert_eq!(bind(gone, EpId::NULL), rmr(Cause::Stale));
        assert_eq!(bind(gone, nowhere), rmr(Cause::Stale));
        assert_eq!(
            bind(RmrId::from_handle(on.pz.handle()), on.endpoint.ep),
            rmr(Cause::WrongKind)
        );
        assert_eq!(bind(on.rmr, EpId::NULL), ep(Cause::NullHandle));
        assert_eq!(bind(on.rmr, nowhere), ep(Cause::Stale));
        assert_eq!(
            bind(on.rmr, EpId::from_handle(on.rmr.handle())),
            ep(Cause::WrongKind)
        );
        // The state is checked before the parameters, which are all wrong.
        on.endpoint.enter(on.ia, EndpointState::Unconnected);
        assert_eq!(bind(on.rmr, on.endpoint.ep).0, ErrorKind::InvalidState);
        on.endpoint.enter(on.ia, EndpointState::Connected);
        assert_eq!(bind(on.rmr, on.endpoint.ep).1, Subtype::InvalidArg6);
        on.untouched();
    });
}

/// Spec: RMB-31, RMB-37, RMB-44
#[test]
fn binds_need_a_connection_or_one_that_is_over() {
    with_setting(|on| {
        for state in EndpointState::ALL {
            on.endpoint.enter(on.ia, *state);
            let outcome = on.bind(&on.whole(), CompletionFlags::empty());
            if matches!(
                state,
                EndpointState::Connected | EndpointState::Disconnected
            ) {
                assert!(outcome.is_ok(), "{state:?}");
                on.complete(DtoStatus::Flushed);
            } else {
                assert_eq!(
                    refusal(outcome),
                    refused_as(
                        ErrorKind::InvalidState,
                        state.subtype(),
                        Cause::EndpointState
                    )
                );
            }
        }
        on.untouched();
    });
}

/// Spec: RMB-34, GEN-06
#[test]
fn calls_refused_by_the_device_change_nothing() {
    with_setting(|on| {
        for part in [on.whole(), LmrTriplet::default()] {
            on.backend
                .refuse_next(crate::backend::BackendError::Resources);
            assert_eq!(
                refusal(on.bind(&part, CompletionFlags::empty())),
                refused_as(
                    ErrorKind::InsufficientResources,
                    Subtype::ResourceTep,
                    Cause::DeviceRefused
                )
            );
            on.untouched();
        }
    });
}

/// A free after a refused bind releases no window but its own.
///
/// Spec: RMB-42, LMF-01, RMF-01
#[test]
fn a_refused_bind_counts_for_nobody_when_its_region_is_freed() {
    with_setting(|on| {
        on.backend
            .refuse_next(crate::backend::BackendError::Resources);
        assert!(on.bind(&on.whole(), CompletionFlags::empty()).is_err());
        let other = on.ia.rmr_create(on.pz).unwrap();
        let flags = CompletionFlags::empty();
        on.ia
            .rmr_bind(other, &on.whole(), PEERS, on.endpoint.ep, 1, flags)
            .unwrap();
        on.complete(DtoStatus::Success);
        on.ia.rmr_free(on.rmr).unwrap();
        assert_eq!(
            refusal(on.ia.lmr_free(on.lmr.lmr)).1,
            Subtype::InvalidStateLmrInUse
        );
        on.ia.rmr_free(other).unwrap();
        on.ia.lmr_free(on.lmr.lmr).unwrap();
    });
}

/// A request dispatcher for transfers only is accepted at creation; its endpoint's binds are
/// refused.
///
/// Spec: EVC-05, RMB-13, DTO-01
#[test]
fn bind_events_go_only_to_dispatchers_that_take_them() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let transfers = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let rmr = ia.rmr_create(bench.pz).unwrap();
    let ep = bench.endpoint();
    let before = ia.ep_query(ep, EpFields::all()).unwrap();
    let bind = || {
        let unbind = LmrTriplet::default();
        ia.rmr_bind(rmr, &unbind, PEERS, ep, 1, CompletionFlags::empty())
    };
    let refused = refused_as(
        ErrorKind::InvalidHandle,
        Subtype::InvalidHandleEvdRequest,
        Cause::FlagNotAllowed,
    );
    let request_at = |request_evd| {
        let wanted = EpParam {
            request_evd,
            ..before
        };
        ia.ep_modify(ep, EpFields::REQUEST_EVD, &wanted).unwrap();
    };
    let state = (
        ErrorKind::InvalidState,
        EndpointState::Unconnected.subtype(),
    );
    request_at(Some(transfers));
    assert_eq!(refusal(bind()), refused);
    // The present dispatcher decides, not an earlier one.
    request_at(Some(bench.data));
    let error = bind().unwrap_err();
    assert_eq!((error.kind(), error.subtype()), state);
    request_at(Some(transfers));
    bench.connect(ep);
    bench.establish(ep);
    assert_eq!(bench.connection_events().len(), 1);
    assert_eq!(refusal(bind()), refused);
    bench.send(ep, 2);
    assert_eq!(bench.device.posted(bench.pair(ep)).0.len(), 1);
    let bindable = bench.connected();
    let unbind = LmrTriplet::default();
    ia.rmr_bind(rmr, &unbind, PEERS, bindable, 1, CompletionFlags::empty())
        .unwrap();
}
