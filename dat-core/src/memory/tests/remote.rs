//! Remote memory regions: creation, queries, freeing.

use super::*;
use crate::backend::BackendError;
use crate::flags::RmrFields;
use crate::id::RmrId;

/// Spec: RMC-01, RMQ-01
#[test]
fn a_new_region_is_unbound() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let rmr = ia.rmr_create(pz).unwrap();
        assert_eq!(backend.objects()[2], 1);
        let param = ia.rmr_query(rmr, RmrFields::all()).unwrap();
        assert_eq!((param.ia, param.pz), (ia.handle(), pz));
        assert_eq!(param.binding, None);
        assert_eq!(
            refusal(ia.rmr_query(rmr, RmrFields::from_bits_retain(0x20))),
            (
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
                Cause::UnknownMask
            )
        );
    });
}

/// Spec: RMC-01, RMB-38, GEN-06
#[test]
fn regions_run_out_in_storage_and_device() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        assert_eq!(
            refusal(ia.rmr_create(PzId::NULL)),
            (
                ErrorKind::InvalidHandle,
                Subtype::InvalidHandlePz,
                Cause::NullHandle
            )
        );
        backend.refuse_next(BackendError::NotSupported);
        assert_eq!(refusal(ia.rmr_create(pz)).0, ErrorKind::ModelNotSupported);
        backend.refuse_next(BackendError::Resources);
        let exhausted = (
            ErrorKind::InsufficientResources,
            Subtype::ResourceMemoryRegion,
        );
        let (kind, subtype, cause) = refusal(ia.rmr_create(pz));
        assert_eq!((kind, subtype), exhausted);
        assert_eq!(cause, Cause::DeviceRefused);
        let all: Vec<_> = (0..8).map(|_| ia.rmr_create(pz).unwrap()).collect();
        let (kind, subtype, cause) = refusal(ia.rmr_create(pz));
        assert_eq!((kind, subtype), exhausted);
        assert_eq!(cause, Cause::TableFull);
        for rmr in all {
            ia.rmr_free(rmr).unwrap();
        }
        assert_eq!(backend.objects()[2], 0);
        ia.pz_free(pz).unwrap();
    });
}

/// Spec: RMF-01, RMQ-01, GEN-03
#[test]
fn dead_and_null_handles_are_refused() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let gone = ia.rmr_create(pz).unwrap();
        ia.rmr_free(gone).unwrap();
        for (rmr, cause) in [
            (gone, Cause::Stale),
            (RmrId::NULL, Cause::NullHandle),
            (RmrId::from_handle(pz.handle()), Cause::WrongKind),
        ] {
            let refused = (ErrorKind::InvalidHandle, Subtype::InvalidHandleRmr, cause);
            assert_eq!(refusal(ia.rmr_free(rmr)), refused);
            assert_eq!(refusal(ia.rmr_query(rmr, RmrFields::PZ)), refused);
        }
    });
}
