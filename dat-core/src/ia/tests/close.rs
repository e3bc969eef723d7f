//! Objects that keep an adapter open, effects of a close, storage of a leaked adapter.

use std::string::ToString;
use std::vec::Vec;

use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::{CloseFlags, EvdFlags, PspFlags};
use crate::id::Handle;
use crate::testing::fixture::{Bench, QUALIFIER};
use crate::testing::{Call, TestBackend, TestStorage, open};

use super::{SHORT, region};

/// An object without users or dependencies keeps the adapter open.
///
/// Tested with a connection request whose service point and dispatcher are freed, and with an
/// endpoint without a zone.
///
/// Spec: IAC-03
#[test]
fn objects_without_users_keep_the_adapter_open() {
    for with_request in [false, true] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let ia = &bench.ia;
        if with_request {
            let psp = bench.listen(QUALIFIER);
            bench.ask(psp.handle());
            bench.request_event().unwrap();
            ia.psp_free(psp).unwrap();
        } else {
            ia.ep_create(None, None, None, None, None).unwrap();
        }
        for evd in [bench.data, bench.connections, bench.requests] {
            ia.evd_free(evd).unwrap();
        }
        ia.pz_free(bench.pz).unwrap();
        let refused = ia.shut(CloseFlags::Graceful).map(drop).unwrap_err();
        assert_eq!(
            (refused.subtype(), refused.cause()),
            (Subtype::InvalidStateIaInUse, Cause::ChildrenLeft),
            "{with_request}"
        );
        assert!(ia.shut(CloseFlags::Abrupt).is_ok());
    }
}

/// A freed object of any kind does not keep the adapter open.
///
/// Spec: IAC-03, IAC-05
#[test]
fn freed_objects_do_not_keep_the_adapter_open() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let lmr = region(ia, bench.pz);
    let rmr = ia.rmr_create(bench.pz).unwrap();
    let cno = ia.cno_create(None).unwrap();
    let srq = ia.srq_create(bench.pz, &SHORT).unwrap();
    let psp = bench.listen(QUALIFIER);
    bench.ask(psp.handle());
    let cr = bench.request_event().unwrap();
    let (ep, rsp) = bench.reserved(QUALIFIER + 1);
    assert!(ia.shut(CloseFlags::Graceful).is_err());
    ia.cr_reject(cr, &[]).unwrap();
    ia.psp_free(psp).unwrap();
    ia.rsp_free(rsp).unwrap();
    ia.ep_free(ep).unwrap();
    ia.srq_free(srq).unwrap();
    ia.cno_free(cno).unwrap();
    ia.rmr_free(rmr).unwrap();
    ia.lmr_free(lmr).unwrap();
    for evd in [bench.data, bench.connections, bench.requests] {
        ia.evd_free(evd).unwrap();
    }
    ia.pz_free(bench.pz).unwrap();
    assert!(ia.shut(CloseFlags::Graceful).is_ok());
    assert_eq!(bench.device.objects(), [0; 7]);
}

/// A close stops the listeners of reserved service points.
///
/// Spec: IAC-01
#[test]
fn a_close_stops_listening_at_reserved_service_points() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    bench.reserved(QUALIFIER);
    bench.device.take_calls();
    assert!(bench.ia.shut(CloseFlags::Abrupt).is_ok());
    let stopped = bench.device.take_calls();
    assert!(
        stopped
            .iter()
            .any(|call| matches!(call, Call::StopListening(_)))
    );
    assert_eq!(bench.device.objects(), [0; 7]);
}

/// Dropping an adapter closes it, unless a close has already taken the backend.
///
/// Spec: IAC-01
#[test]
fn an_adapter_that_goes_out_of_scope_is_closed() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    bench.connected();
    region(&bench.ia, bench.pz);
    let device = bench.device.clone();
    drop(bench);
    assert_eq!(device.objects(), [0; 7]);
}

/// A failed close reports the error and the objects that are left.
///
/// Spec: IAC-03
#[test]
fn a_refused_close_says_why() {
    let mut storage = TestStorage::new();
    let device = TestBackend::default();
    let ia = open(&mut storage, &device);
    ia.pz_create().unwrap();
    let refused = ia.close(CloseFlags::Graceful).map(drop).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::InvalidState);
    let said = refused.to_string();
    let why = refused.error.to_string();
    assert_eq!(
        said,
        std::format!("the interface adapter cannot be closed: {why}: 1 protection zone")
    );
    let debug = std::format!("{refused:?}");
    assert!(debug.contains("CloseError") && debug.contains("error"));
}

/// Generations continue in the storage of a leaked adapter.
///
/// So an old handle names no newer object, even if instance, kind and index are equal. The storage
/// has room for as many connection requests as before.
///
/// Spec: GEN-03, IAO-01
#[test]
fn lives_are_counted_on_in_storage_that_was_left() {
    let one_of_each = |bench: &Bench<'_>| -> Vec<Handle> {
        let ia = &bench.ia;
        let (ep, rsp) = bench.reserved(QUALIFIER + 1);
        let psp = bench.listen(QUALIFIER);
        bench.ask(psp.handle());
        std::vec![
            bench.pz.handle(),
            bench.data.handle(),
            psp.handle(),
            rsp.handle(),
            bench.request_event().unwrap().handle(),
            region(ia, bench.pz).handle(),
            ia.rmr_create(bench.pz).unwrap().handle(),
            ia.cno_create(None).unwrap().handle(),
            ep.handle(),
            ia.srq_create(bench.pz, &SHORT).unwrap().handle(),
        ]
    };
    // There is room for eight connection requests.
    let requests = |bench: &Bench<'_>| {
        let arrivals = bench.ia.evd_create(16, None, EvdFlags::CR).unwrap();
        let psp = bench
            .ia
            .psp_create(QUALIFIER + 2, arrivals, PspFlags::Consumer)
            .unwrap();
        for _ in 0..16 {
            bench.ask(psp.handle());
        }
        core::iter::from_fn(|| bench.ia.evd_dequeue(arrivals).ok()).count()
    };
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let before = one_of_each(&bench);
    let room = requests(&bench);
    assert!(room > 0);
    core::mem::forget(bench);
    let bench = Bench::new(&mut storage);
    let after = one_of_each(&bench);
    assert_eq!(before.len(), after.len());
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(old.kind(), new.kind());
        let reused = old.index() == new.index();
        assert!(!reused || new.generation() > old.generation(), "{new:?}");
    }
    assert_eq!(requests(&bench), room);
}
