//! Consumer contexts of all kinds of objects, and kinds of handles.

use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::HandleKind;
use crate::id::{Handle, Index};
use crate::testing::TestStorage;
use crate::testing::fixture::{Bench, QUALIFIER};

use super::{SHORT, region};

/// Creates one object of each kind; returns each with the subtype that refuses its handle.
fn objects(bench: &Bench<'_>) -> [(Handle, HandleKind, Subtype); 11] {
    let ia = &bench.ia;
    let ep = bench.endpoint();
    let (_, rsp) = bench.reserved(QUALIFIER + 1);
    let psp = bench.listen(QUALIFIER);
    bench.ask(psp.handle());
    let cr = bench.request_event().unwrap();
    [
        (ia.handle(), HandleKind::Ia, Subtype::InvalidHandleIa),
        (bench.pz.handle(), HandleKind::Pz, Subtype::InvalidHandlePz),
        (
            region(ia, bench.pz).handle(),
            HandleKind::Lmr,
            Subtype::InvalidHandleLmr,
        ),
        (
            ia.rmr_create(bench.pz).unwrap().handle(),
            HandleKind::Rmr,
            Subtype::InvalidHandleRmr,
        ),
        (
            bench.data.handle(),
            HandleKind::Evd,
            Subtype::InvalidHandle1,
        ),
        (
            ia.cno_create(None).unwrap().handle(),
            HandleKind::Cno,
            Subtype::InvalidHandleCno,
        ),
        (ep.handle(), HandleKind::Ep, Subtype::InvalidHandleEp),
        (
            ia.srq_create(bench.pz, &SHORT).unwrap().handle(),
            HandleKind::Srq,
            Subtype::InvalidHandleSrq,
        ),
        (psp.handle(), HandleKind::Psp, Subtype::InvalidHandlePsp),
        (rsp.handle(), HandleKind::Rsp, Subtype::InvalidHandleRsp),
        (cr.handle(), HandleKind::Cr, Subtype::InvalidHandleCr),
    ]
}

/// Spec: CTX-01, CTX-02, CTX-03, CTX-04, HTY-01
#[test]
fn every_object_keeps_a_word_of_its_own() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let objects = objects(&bench);
    let word = |number: usize| u64::MAX - number as u64;
    for (number, (handle, kind, _)) in objects.into_iter().enumerate() {
        assert_eq!(bench.ia.get_handle_type(handle), Ok(kind));
        assert_eq!(bench.ia.get_consumer_context(handle), Ok(0), "{kind:?}");
        assert_eq!(
            bench.ia.set_consumer_context(handle, word(number)),
            Ok(()),
            "{kind:?}"
        );
    }
    for (number, (handle, kind, _)) in objects.into_iter().enumerate() {
        let kept = bench.ia.get_consumer_context(handle);
        assert_eq!(kept, Ok(word(number)), "{kind:?}");
        bench.ia.set_consumer_context(handle, 0).unwrap();
        assert_eq!(bench.ia.get_consumer_context(handle), Ok(0), "{kind:?}");
    }
}

/// A handle of another generation, index or adapter names no object, whatever its kind.
///
/// Spec: CTX-01, CTX-02, HTY-01
#[test]
fn a_handle_of_nothing_reaches_no_word() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let (ia, instance) = (&bench.ia, bench.ia.handle().instance());
    for (handle, kind, subtype) in objects(&bench) {
        ia.set_consumer_context(handle, 5).unwrap();
        let index = handle.slot();
        let others = [
            (instance, handle.generation() + 1, index, Cause::Stale),
            (
                instance,
                handle.generation(),
                Index::from_word(u32::MAX),
                Cause::Stale,
            ),
            (instance + 1, handle.generation(), index, Cause::Foreign),
        ];
        for (instance, generation, index, cause) in others {
            let other = Handle::new(instance, kind, generation, index);
            let outcomes = [
                ia.get_handle_type(other).map(drop),
                ia.get_consumer_context(other).map(drop),
                ia.set_consumer_context(other, 6),
            ];
            for outcome in outcomes {
                let error = outcome.expect_err("it names no object");
                assert_eq!(
                    (error.kind(), error.subtype(), error.cause()),
                    (ErrorKind::InvalidHandle, subtype, cause),
                    "{other:?}"
                );
            }
        }
        assert_eq!(ia.get_consumer_context(handle), Ok(5), "{kind:?}");
    }
    for malformed in [Handle::NULL, Handle::from_raw(u64::MAX)] {
        let error = ia.get_consumer_context(malformed).expect_err("no kind");
        assert_eq!(error.kind(), ErrorKind::InvalidHandle);
        assert_eq!(error.subtype(), Subtype::InvalidHandle1);
    }
}
