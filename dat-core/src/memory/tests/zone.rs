//! Protection zones.

use super::*;
use crate::backend::BackendError;
use crate::flags::{PzFields, RmrFields};

/// Spec: PZC-01, PZQ-01
#[test]
fn a_zone_is_made_and_tells_its_adapter() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        assert_eq!(backend.objects()[0], 1);
        assert_eq!(ia.pz_query(pz, PzFields::IA).unwrap().ia, ia.handle());
        assert_eq!(
            refusal(ia.pz_query(pz, PzFields::from_bits_retain(2))),
            (
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
                Cause::UnknownMask
            )
        );
    });
}

/// Spec: PZC-01, GEN-06
#[test]
fn zones_run_out_in_storage_and_device() {
    with_ia(|ia, backend| {
        backend.refuse_next(BackendError::Resources);
        assert_eq!(
            refusal(ia.pz_create()),
            (
                ErrorKind::InsufficientResources,
                Subtype::ResourceProtectionDomain,
                Cause::DeviceRefused
            )
        );
        let zones: Vec<_> = (0..8).map(|_| ia.pz_create().unwrap()).collect();
        assert_eq!(
            refusal(ia.pz_create()),
            (
                ErrorKind::InsufficientResources,
                Subtype::ResourceProtectionDomain,
                Cause::TableFull
            )
        );
        assert_eq!(backend.objects()[0], 8);
        ia.pz_free(zones[3]).unwrap();
        assert_ne!(ia.pz_create().unwrap(), zones[3]);
    });
}

/// Spec: PZF-01, GEN-03, GEN-11
#[test]
fn dead_null_and_foreign_zones_are_told_apart() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        ia.pz_free(pz).unwrap();
        assert_eq!(backend.objects()[0], 0);
        let refused = |cause| (ErrorKind::InvalidHandle, Subtype::InvalidHandlePz, cause);
        assert_eq!(refusal(ia.pz_free(pz)), refused(Cause::Stale));
        assert_eq!(refusal(ia.pz_free(PzId::NULL)), refused(Cause::NullHandle));
        assert_eq!(
            refusal(ia.pz_free(PzId::from_handle(ia.handle()))),
            refused(Cause::WrongKind)
        );
        with_ia(|other, _| {
            let foreign = other.pz_create().unwrap();
            assert_eq!(
                refusal(ia.pz_query(foreign, PzFields::IA)),
                refused(Cause::Foreign)
            );
        });
    });
}

/// Spec: PZF-01, GEN-15
#[test]
fn a_zone_in_use_stays() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let in_use = (
            ErrorKind::InvalidState,
            Subtype::InvalidStatePzInUse,
            Cause::StillReferenced,
        );
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        assert_eq!(refusal(ia.pz_free(pz)), in_use);
        ia.lmr_free(lmr.lmr).unwrap();
        let rmr = ia.rmr_create(pz).unwrap();
        assert_eq!(refusal(ia.pz_free(pz)), in_use);
        ia.rmr_free(rmr).unwrap();
        let endpoint = TestEndpoint::new(ia, 0, pz);
        assert_eq!(refusal(ia.pz_free(pz)), in_use);
        endpoint.destroy(ia);
        assert_eq!(backend.objects()[0], 1);
        ia.pz_free(pz).unwrap();
        assert_eq!(backend.objects()[0], 0);
    });
}

/// A remote region keeps the zone that it was created in, and no other.
///
/// Spec: PZF-01, RMC-01, RMQ-01
#[test]
fn a_window_is_of_the_zone_that_it_was_made_in() {
    with_ia(|ia, _| {
        let zones = [ia.pz_create().unwrap(), ia.pz_create().unwrap()];
        let rmr = ia.rmr_create(zones[1]).unwrap();
        assert_eq!(ia.rmr_query(rmr, RmrFields::all()).unwrap().pz, zones[1]);
        ia.pz_free(zones[0]).unwrap();
        assert_eq!(refusal(ia.pz_free(zones[1])).2, Cause::StillReferenced);
        ia.rmr_free(rmr).unwrap();
        ia.pz_free(zones[1]).unwrap();
    });
}
