//! The bits of a handle.

use std::format;

use super::{EpId, EvdId, Handle, INDEX_BITS, LAST_GENERATION, next_generation};
use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::HandleKind;
use crate::id::Index;

/// Bits of the generation and the index together: 0x8AB_CDEF_F00D.
const SOME: Handle = Handle::new(
    0xABCD,
    HandleKind::Ep,
    (0x8AB_CDEF_F00D_u64 >> INDEX_BITS) as u32,
    Index::from_word(0xCDEF_F00D),
);

#[test]
fn each_part_has_its_place() {
    assert_eq!(SOME.instance(), 0xABCD);
    assert_eq!(SOME.kind(), Some(HandleKind::Ep));
    if INDEX_BITS == 20 {
        assert_eq!((SOME.generation(), SOME.index()), (0x8A_BCDE, 0xF_F00D));
    } else {
        assert_eq!((SOME.generation(), SOME.index()), (0x8AB_CDEF, 0xF00D));
    }
    let kind = HandleKind::Ep as u64 + 1;
    assert_eq!(SOME.to_raw(), 0xABCD_08AB_CDEF_F00D | kind << 44);
    assert_eq!(Handle::from_raw(SOME.to_raw()), SOME);
    assert!(!SOME.is_null());
}

/// Spec: HTY-01
#[test]
fn a_word_of_no_kind_names_nothing() {
    assert!(Handle::NULL.is_null());
    assert_eq!(Handle::NULL.to_raw(), 0);
    for word in [0, 1, u64::MAX] {
        assert_eq!(Handle::from_raw(word).kind(), None, "{word:#x}");
    }
}

#[test]
fn a_handle_can_be_read() {
    assert_eq!(format!("{:?}", Handle::NULL), "null");
    assert_eq!(format!("{:?}", Handle::from_raw(1)), "malformed 0x1");
    let handle = Handle::new(4, HandleKind::Evd, 3, Index::from(2));
    assert_eq!(format!("{handle:?}"), "Evd#2.3@4");
    assert_eq!(format!("{:?}", EvdId::from_handle(handle)), "Evd#2.3@4");
}

/// Spec: GEN-03
#[test]
fn a_refusal_says_what_the_handle_is_instead() {
    let refused = |handle: Handle, instance| {
        let error = handle.refused(HandleKind::Ep, instance, Subtype::InvalidHandleEp);
        assert_eq!(
            (error.kind(), error.subtype()),
            (ErrorKind::InvalidHandle, Subtype::InvalidHandleEp)
        );
        error.cause()
    };
    assert_eq!(refused(Handle::NULL, 0xABCD), Cause::NullHandle);
    assert_eq!(
        refused(Handle::from_raw(u64::MAX), 0xABCD),
        Cause::WrongKind
    );
    let zone = Handle::new(0xABCD, HandleKind::Pz, 1, Index::from(1));
    assert_eq!(refused(zone, 0xABCD), Cause::WrongKind);
    assert_eq!(refused(SOME, 0xABCE), Cause::Foreign);
    assert_eq!(refused(SOME, 0xABCD), Cause::Stale);
    let error = EvdId::from_handle(SOME).refused_as(0xABCD, Subtype::InvalidHandleEvdConn);
    assert_eq!(
        (error.kind(), error.subtype(), error.cause()),
        (
            ErrorKind::InvalidHandle,
            Subtype::InvalidHandleEvdConn,
            Cause::WrongKind
        )
    );
}

/// The never-matching value differs from the handle, and applying it twice gives the handle back.
#[test]
fn never_matching_value_is_no_handle() {
    for index in [0, 1, 6, 7] {
        let ep = EpId::new(1, 1, index.into());
        assert_ne!(ep.never_matching(), ep);
        assert_eq!(ep.never_matching().never_matching(), ep);
        let evd = EvdId::new(1, 1, index.into());
        assert_ne!(evd.never_matching(), evd);
        assert_eq!(evd.never_matching().never_matching(), evd);
    }
}

#[test]
fn a_slot_is_used_up_after_its_last_generation() {
    assert_eq!(next_generation(0), Ok(1));
    assert_eq!(next_generation(LAST_GENERATION - 1), Ok(LAST_GENERATION));
    let error = next_generation(LAST_GENERATION).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientResources);
}
