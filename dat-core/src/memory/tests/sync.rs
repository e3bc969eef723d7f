//! Synchronisation of regions with RDMA.

use super::*;
use crate::attributes::ProviderAttributes;
use crate::backend::SyncDirection;
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES};

/// Returns a device that needs cache maintenance.
fn incoherent() -> TestBackend {
    TestBackend::new(
        IA_ATTRIBUTES,
        ProviderAttributes {
            lmr_sync_req: true,
            ..PROVIDER_ATTRIBUTES
        },
    )
}

/// Returns the synchronisations among the device's calls.
fn syncs(backend: &TestBackend) -> Vec<Call> {
    let mut calls = backend.take_calls();
    calls.retain(|call| matches!(call, Call::Sync(..)));
    calls
}

/// Calls both functions and checks each outcome with its direction.
fn both(
    ia: &TestIa<'_>,
    segments: &[LmrTriplet],
    mut check: impl FnMut(SyncDirection, Result<()>),
) {
    check(SyncDirection::RdmaRead, ia.lmr_sync_rdma_read(segments));
    check(SyncDirection::RdmaWrite, ia.lmr_sync_rdma_write(segments));
}

/// Spec: LSW-01..11, LSW-17, LSW-24, LSW-26, LSW-27, LSR-01..04
#[test]
fn each_piece_is_synchronised_before_the_call_returns() {
    let backend = incoherent();
    with_backend(&backend, |ia| {
        let near = ia.pz_create().unwrap();
        let far = ia.pz_create().unwrap();
        let one = region(ia, near, MemoryPrivileges::ALL);
        let two = region(ia, far, MemoryPrivileges::empty());
        let segments = [
            segment(&one, 0, 16),
            segment(&two, 0x100, LENGTH as u64 - 0x100),
            segment(&one, LENGTH as u64 - 1, 1),
        ];
        both(ia, &segments, |direction, outcome| {
            assert_eq!(outcome, Ok(()));
            let asked: Vec<_> = segments
                .iter()
                .map(|segment| Call::Sync(direction, segment.address, segment.length))
                .collect();
            assert_eq!(syncs(&backend), asked);
        });
    });
}

/// Spec: LSW-04, LSW-29, LSW-31, LSR-01
#[test]
fn a_coherent_device_is_not_asked_but_arguments_are_checked() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        both(ia, &[segment(&lmr, 0, LENGTH as u64)], |_, outcome| {
            assert_eq!(outcome, Ok(()));
        });
        both(ia, &[segment(&lmr, 1, LENGTH as u64)], |_, outcome| {
            assert_eq!(
                refusal(outcome),
                (
                    ErrorKind::InvalidParameter,
                    Subtype::InvalidArg2,
                    Cause::OutsideRegion
                )
            );
        });
        assert!(syncs(backend).is_empty());
    });
}

/// Spec: LSW-28, LSW-30, LSR-05, DTO-06
#[test]
fn nothing_and_empty_pieces_are_fine_whatever_they_say() {
    for backend in [incoherent(), TestBackend::default()] {
        with_backend(&backend, |ia| {
            let empty = LmrTriplet {
                context: 0xDEAD_BEEF,
                address: u64::MAX,
                length: 0,
            };
            both(ia, &[], |_, outcome| assert_eq!(outcome, Ok(())));
            both(ia, &[empty, empty], |_, outcome| {
                assert_eq!(outcome, Ok(()))
            });
            assert!(syncs(&backend).is_empty());
        });
    }
}

/// Spec: LSW-19, LSW-20, LSW-30, LSR-05, GEN-06
#[test]
fn one_bad_piece_spoils_the_call_before_anything_is_done() {
    let backend = incoherent();
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let gone = region(ia, pz, MemoryPrivileges::ALL);
        ia.lmr_free(gone.lmr).unwrap();
        let good = segment(&lmr, 0, 8);
        let faults = [
            (segment(&lmr, LENGTH as u64, 1), Cause::OutsideRegion),
            (segment(&lmr, u64::MAX, 1), Cause::OutsideRegion),
            (segment(&lmr, 0, LENGTH as u64 + 1), Cause::OutsideRegion),
            (segment(&lmr, 8, u64::MAX), Cause::AddressOverflow),
            (
                LmrTriplet {
                    address: u64::MAX,
                    ..good
                },
                Cause::AddressOverflow,
            ),
            (segment(&gone, 0, 8), Cause::StaleContext),
            (LmrTriplet { context: 0, ..good }, Cause::UnknownContext),
            (
                LmrTriplet {
                    context: 0x1_0007,
                    ..good
                },
                Cause::UnknownContext,
            ),
            (
                LmrTriplet {
                    context: 0xFFFF_FFFF,
                    ..good
                },
                Cause::UnknownContext,
            ),
        ];
        for (bad, cause) in faults {
            both(ia, &[good, bad, good], |_, outcome| {
                assert_eq!(
                    refusal(outcome),
                    (ErrorKind::InvalidParameter, Subtype::InvalidArg2, cause)
                );
            });
        }
        assert!(syncs(&backend).is_empty());
    });
}
