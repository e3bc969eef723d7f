//! Closing and opening adapters, with objects at any index of a table.

mod close;
mod contexts;
mod interrupts;
mod opening;
mod progress;
#[cfg(feature = "std")]
mod threads;

use crate::adapter::Ia;
use crate::attributes::SrqAttributes;
use crate::backend::{ControlEvent, PrivateData, RequestKey};
use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::{CloseFlags, EvdFlags, MemoryPrivileges, PspFlags, PzFields};
use crate::id::{LmrId, PzId};
use crate::memory::{LmrMemory, LmrRequest, Region};
use crate::sync::NoLock;
use crate::testing::fixture::{Bench, PEER, QUALIFIER, has_records};
use crate::testing::{Call, TestBackend, TestStorage, open};
use crate::time::Instant;

type TestIa<'s> = Ia<'s, TestBackend, NoLock>;

/// Attributes of a queue of one buffer with one segment.
const SHORT: SrqAttributes = SrqAttributes {
    max_recv_dtos: 1,
    max_recv_iov: 1,
    low_watermark: 0,
};

fn region(ia: &TestIa<'_>, pz: PzId) -> LmrId {
    let request = LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(0x1_0000, 0x1000)),
        pz,
        privileges: MemoryPrivileges::LOCAL_READ,
    };
    ia.lmr_create(&request).unwrap().lmr
}

/// Creates four objects of a kind and frees all but the last.
///
/// The last is in a slot that only this kind used.
fn last_of_four<T>(mut make: impl FnMut(u64) -> T, free: impl Fn(T)) -> T {
    let [first, second, third, last] = [0, 1, 2, 3].map(&mut make);
    [first, second, third].into_iter().for_each(free);
    last
}

/// Spec: IAC-01, IAC-03, IAC-05
#[test]
fn a_close_finds_the_one_object_of_a_kind_behind_free_slots() {
    type Make = fn(&TestIa<'_>, &TestBackend);
    let kinds: [(&str, Make); 10] = [
        ("zone", |ia, _| {
            last_of_four(|_| ia.pz_create().unwrap(), |pz| ia.pz_free(pz).unwrap());
        }),
        ("local region", |ia, _| {
            let pz = ia.pz_create().unwrap();
            last_of_four(|_| region(ia, pz), |lmr| ia.lmr_free(lmr).unwrap());
        }),
        ("remote region", |ia, _| {
            let pz = ia.pz_create().unwrap();
            last_of_four(
                |_| ia.rmr_create(pz).unwrap(),
                |rmr| ia.rmr_free(rmr).unwrap(),
            );
        }),
        ("notification object", |ia, _| {
            last_of_four(
                |_| ia.cno_create(None).unwrap(),
                |cno| ia.cno_free(cno).unwrap(),
            );
        }),
        ("dispatcher", |ia, _| {
            last_of_four(
                |_| ia.evd_create(1, None, EvdFlags::DTO).unwrap(),
                |evd| ia.evd_free(evd).unwrap(),
            );
        }),
        ("endpoint", |ia, _| {
            let pz = ia.pz_create().unwrap();
            last_of_four(
                |_| ia.ep_create(Some(pz), None, None, None, None).unwrap(),
                |ep| ia.ep_free(ep).unwrap(),
            );
        }),
        ("shared queue", |ia, _| {
            let pz = ia.pz_create().unwrap();
            last_of_four(
                |_| ia.srq_create(pz, &SHORT).unwrap(),
                |srq| ia.srq_free(srq).unwrap(),
            );
        }),
        ("service point", |ia, _| {
            let evd = ia.evd_create(1, None, EvdFlags::CR).unwrap();
            last_of_four(
                |number| {
                    ia.psp_create(QUALIFIER + number, evd, PspFlags::Consumer)
                        .unwrap()
                },
                |psp| ia.psp_free(psp).unwrap(),
            );
        }),
        ("reserved service point", |ia, _| {
            let evd = ia.evd_create(1, None, EvdFlags::CR).unwrap();
            last_of_four(
                |number| ia.rsp_create(QUALIFIER + number, None, evd).unwrap(),
                |rsp| ia.rsp_free(rsp).unwrap(),
            );
        }),
        ("request", |ia, device| {
            let evd = ia.evd_create(4, None, EvdFlags::CR).unwrap();
            let psp = ia.psp_create(QUALIFIER, evd, PspFlags::Consumer).unwrap();
            last_of_four(
                |number| {
                    device.push_control(ControlEvent::ConnectionRequest {
                        listener: psp.handle().to_raw(),
                        request: RequestKey(number as usize),
                        remote: PEER,
                        remote_port: 5,
                        local: PEER,
                        private_data: PrivateData::from_slice(b"").unwrap(),
                    });
                    ia.progress(Instant::ZERO);
                    let Ok(crate::event::Event::ConnectionRequest { cr, .. }) = ia.evd_dequeue(evd)
                    else {
                        panic!("a request");
                    };
                    cr
                },
                |cr| ia.cr_reject(cr, &[]).unwrap(),
            );
            device.take_calls();
        }),
    ];
    for (kind, make) in kinds {
        let device = TestBackend::default();
        let mut storage = TestStorage::new();
        let ia = open(&mut storage, &device);
        make(&ia, &device);
        let refused = ia.close(CloseFlags::Graceful).map(drop).unwrap_err();
        assert_eq!(
            (refused.error.kind(), refused.error.subtype()),
            (ErrorKind::InvalidState, Subtype::InvalidStateIaInUse),
            "{kind}"
        );
        assert!(refused.ia.close(CloseFlags::Abrupt).is_ok(), "{kind}");
        assert_eq!(device.objects(), [0; 7], "{kind}");
        let rejected = device
            .take_calls()
            .into_iter()
            .any(|call| matches!(call, Call::Reject { request, .. } if request == RequestKey(3)));
        assert_eq!(rejected, kind == "request", "{kind}");
    }
}

/// Opening clears the objects that a leaked adapter left in the storage.
///
/// Spec: IAO-01, GEN-03
#[test]
fn an_opening_finds_storage_empty_that_another_adapter_left_full() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let left = bench.pz;
    let evd = bench.requests;
    let ep = bench.connected();
    bench.receive(ep, 1);
    bench.send(ep, 2);
    fill(&bench.ia, left);
    for number in 1.. {
        if bench
            .ia
            .psp_create(QUALIFIER + number, evd, PspFlags::Consumer)
            .is_err()
        {
            break;
        }
    }
    core::mem::forget(bench);

    let device = TestBackend::default();
    let ia = open(&mut storage, &device);
    assert_eq!(
        ia.pz_query(left, PzFields::empty()).unwrap_err().kind(),
        ErrorKind::InvalidHandle
    );
    assert!(ia.evd_dequeue(evd).is_err());
    // The storage has as much room as new storage.
    let pz = ia.pz_create().unwrap();
    let mut new = TestStorage::new();
    let other = open(&mut new, &device);
    let zone = other.pz_create().unwrap();
    assert_eq!(fill(&ia, pz), fill(&other, zone));
    core::mem::forget(ia);

    let ia = open(&mut storage, &device);
    assert!(has_records(&ia, 256), "records of leaked queues too");
    core::mem::forget(ia);

    let closed = open(&mut storage, &TestBackend::default()).close(CloseFlags::Graceful);
    assert!(closed.is_ok(), "no object is left");
}

/// Creates as many objects as fit; returns the number of each kind.
fn fill(ia: &TestIa<'_>, pz: PzId) -> [usize; 7] {
    let count = |make: &dyn Fn() -> bool| (0..100).take_while(|_| make()).count();
    let request = LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(0x1_0000, 0x1000)),
        pz,
        privileges: MemoryPrivileges::LOCAL_READ,
    };
    [
        count(&|| ia.lmr_create(&request).is_ok()),
        count(&|| ia.rmr_create(pz).is_ok()),
        count(&|| ia.cno_create(None).is_ok()),
        count(&|| ia.evd_create(1, None, EvdFlags::SOFTWARE).is_ok()),
        count(&|| ia.ep_create(Some(pz), None, None, None, None).is_ok()),
        count(&|| ia.srq_create(pz, &SHORT).is_ok()),
        count(&|| ia.pz_create().is_ok()),
    ]
}

/// Objects cannot be created during a close, which would not destroy them.
///
/// Spec: IAC-01, IAC-05, GEN-15
#[test]
fn nothing_is_made_once_a_close_has_begun() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let (ia, device, pz) = (&bench.ia, &bench.device, bench.pz);
    let arrivals = ia.evd_create(4, None, EvdFlags::CR).unwrap();
    let psp = ia
        .psp_create(QUALIFIER, arrivals, PspFlags::Consumer)
        .unwrap();
    let before = device.objects();
    device.take_calls();
    ia.control.with(|control| control.closing = true);
    let request = LmrRequest {
        memory: LmrMemory::Virtual(Region::from_addresses(0x1_0000, 0x1000)),
        pz,
        privileges: MemoryPrivileges::LOCAL_READ,
    };
    let refused = [
        ia.pz_create().map(drop),
        ia.lmr_create(&request).map(drop),
        ia.rmr_create(pz).map(drop),
        ia.cno_create(None).map(drop),
        ia.evd_create(1, None, EvdFlags::SOFTWARE).map(drop),
        ia.ep_create(Some(pz), None, None, None, None).map(drop),
        ia.srq_create(pz, &SHORT).map(drop),
        ia.psp_create(QUALIFIER + 1, arrivals, PspFlags::Consumer)
            .map(drop),
        ia.psp_create_any(arrivals, PspFlags::Consumer).map(drop),
        ia.rsp_create(QUALIFIER + 2, None, arrivals).map(drop),
    ];
    for (number, outcome) in refused.into_iter().enumerate() {
        let error = outcome.expect_err("the adapter is being closed");
        assert_eq!(
            (error.kind(), error.subtype(), error.cause()),
            (
                ErrorKind::InvalidHandle,
                Subtype::InvalidHandleIa,
                Cause::Closing
            ),
            "{number}"
        );
    }
    device.push_control(ControlEvent::ConnectionRequest {
        listener: psp.handle().to_raw(),
        request: RequestKey(7),
        remote: PEER,
        remote_port: 5,
        local: PEER,
        private_data: PrivateData::from_slice(b"").unwrap(),
    });
    ia.progress(Instant::ZERO);
    assert!(ia.evd_dequeue(arrivals).is_err());
    assert_eq!(device.objects(), before);
    let calls = device.take_calls();
    assert!(matches!(calls[..], [Call::Reject { request, .. }] if request == RequestKey(7)));
    let again = ia.shut(CloseFlags::Abrupt).unwrap_err();
    assert_eq!(again.cause(), Cause::Closing);
}
