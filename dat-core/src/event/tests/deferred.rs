//! Calls with more deferred effects than a `Deferred` has room for.

use std::vec::Vec;

use super::TestIa;
use crate::Ia;
use crate::backend::DeviceFailure;
use crate::error::ErrorKind;
use crate::event::{AsyncEventKind, Deferred, Event, ProxyAgent, REASON_PRIMARY};
use crate::flags::EvdFlags;
use crate::id::{CnoId, EvdId, Handle};
use crate::sync::NoLock;
use crate::testing::{TestBackend, WakeCount};
use core::task::Poll;

/// More entries than any list of a `Deferred` holds.
const MANY: usize = 15;

crate::define_storage! {
    struct ManyStorage for TestBackend, NoLock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 16,
        notification_objects: 16,
        endpoints: 1,
        shared_receive_queues: 1,
        public_service_points: 1,
        reserved_service_points: 1,
        connection_requests: 1,
        events: 64,
        records: 8,
    }
}

/// Creates dispatchers, each attached to a notification object of its own.
fn many(ia: &TestIa<'_>, flags: EvdFlags, agent: Option<ProxyAgent>) -> Vec<(CnoId, EvdId)> {
    (0..MANY)
        .map(|_| {
            let cno = ia.cno_create(agent).unwrap();
            (cno, ia.evd_create(1, Some(cno), flags).unwrap())
        })
        .collect()
}

/// Dequeues the reports on the asynchronous dispatcher.
fn reports(ia: &TestIa<'_>) -> Vec<(AsyncEventKind, Handle)> {
    core::iter::from_fn(|| ia.evd_dequeue(ia.async_evd()).ok())
        .map(|event| match event {
            Event::Async {
                kind,
                handle,
                reason: REASON_PRIMARY,
            } => (kind, handle),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Spec: CNW-01, CNW-06, CNC-02
#[test]
fn every_notification_object_hears_of_its_dispatcher() {
    static CALLS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
    let count = |_, evd: Option<EvdId>| {
        assert!(evd.is_some());
        CALLS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    };
    let agent = ProxyAgent {
        function: count,
        instance_data: 0,
    };
    let mut storage = ManyStorage::new();
    let ia = Ia::open(TestBackend::default(), storage.lend(), 4).unwrap();
    let pairs = many(&ia, EvdFlags::SOFTWARE, Some(agent));
    let (wakes, waker) = WakeCount::new();
    let mut waits: Vec<_> = pairs
        .iter()
        .map(|&(cno, _)| ia.cno_wait(cno).unwrap())
        .collect();
    for wait in &mut waits {
        assert!(wait.poll(&waker).is_pending());
    }
    let mut deferred = Deferred::default();
    for (pointer, &(_, evd)) in (0..).zip(&pairs) {
        let queued = ia.with_evd(evd, &mut deferred, |queue, deferred| {
            Ok(queue.push(&Event::Software { pointer }, &ia.shared, deferred))
        });
        assert_eq!(queued, Ok(true));
    }
    ia.run_deferred(&mut deferred);
    assert_eq!(wakes.take(), MANY);
    assert_eq!(CALLS.load(core::sync::atomic::Ordering::Relaxed), MANY);
    for (mut wait, (cno, evd)) in waits.into_iter().zip(pairs) {
        assert_eq!(wait.poll(&waker), Poll::Ready(Ok(Some(evd))));
        // Only one notification was pending.
        assert!(ia.cno_wait(cno).unwrap().poll(&waker).is_pending());
    }
}

/// Two dispatchers of one notification object that fire in one call release two waiters.
///
/// Spec: CNW-06
#[test]
fn every_dispatcher_of_a_notification_object_releases_one_that_waits() {
    let mut storage = ManyStorage::new();
    let ia = Ia::open(TestBackend::default(), storage.lend(), 4).unwrap();
    let cno = ia.cno_create(None).unwrap();
    let evds = [0, 1].map(|_| ia.evd_create(2, Some(cno), EvdFlags::SOFTWARE).unwrap());
    let (wakes, waker) = WakeCount::new();
    let mut waits = [0, 1, 2].map(|_| ia.cno_wait(cno).unwrap());
    for wait in &mut waits {
        assert!(wait.poll(&waker).is_pending());
    }
    let mut deferred = Deferred::default();
    for evd in evds {
        let queued = ia.with_evd(evd, &mut deferred, |queue, deferred| {
            let event = Event::Software { pointer: 1 };
            Ok(queue.push(&event, &ia.shared, deferred))
        });
        assert_eq!(queued, Ok(true));
    }
    ia.run_deferred(&mut deferred);
    assert_eq!(wakes.take(), 2);
    let polls = waits.each_mut().map(|wait| wait.poll(&waker));
    for poll in &polls[..2] {
        assert!(matches!(poll, Poll::Ready(Ok(Some(evd))) if evds.contains(evd)));
    }
    assert!(polls[2].is_pending());
}

/// Spec: DTO-13
#[test]
fn every_overflow_and_every_failure_is_reported() {
    let mut storage = ManyStorage::new();
    let ia = Ia::open(TestBackend::default(), storage.lend(), MANY as i32).unwrap();
    let pairs = many(&ia, EvdFlags::SOFTWARE, None);
    let expected = |kind| -> std::collections::BTreeSet<_> {
        pairs
            .iter()
            .map(|(_, evd)| (kind as u32, evd.handle()))
            .collect()
    };
    let told = || -> std::collections::BTreeSet<_> {
        let reports = reports(&ia);
        assert_eq!(reports.len(), MANY);
        reports
            .into_iter()
            .map(|(kind, handle)| (kind as u32, handle))
            .collect()
    };
    let mut deferred = Deferred::default();
    for &(_, evd) in &pairs {
        let event = Event::Software { pointer: 1 };
        let outcome = ia.with_evd(evd, &mut deferred, |queue, deferred| {
            for _ in 0..3 {
                queue.push_unsolicited(&event, &ia.shared, deferred);
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
    }
    ia.run_deferred(&mut deferred);
    assert_eq!(told(), expected(AsyncEventKind::EvdOverflow));

    let mut deferred = Deferred::default();
    for &(_, evd) in &pairs {
        let outcome = ia.with_evd(evd, &mut deferred, |queue, deferred| {
            let overrun = DeviceFailure::CompletionQueueOverrun;
            queue.take_polled(Err(overrun), None, &ia.shared, deferred);
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
    }
    ia.run_deferred(&mut deferred);
    assert_eq!(told(), expected(AsyncEventKind::EvdOverflow));
    let error = ia.evd_dequeue(ia.async_evd()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueEmpty);
}

/// A report notifies the asynchronous dispatcher's object, even if the call's lists are full.
///
/// Spec: CNW-01, DTO-13
#[test]
fn a_report_triggers_as_well() {
    let mut storage = ManyStorage::new();
    let ia = Ia::open(TestBackend::default(), storage.lend(), 4).unwrap();
    let own = ia.cno_create(None).unwrap();
    ia.evd_modify_cno(ia.async_evd(), Some(own)).unwrap();
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let cno = ia.cno_create(None).unwrap();
            ia.evd_create(1, Some(cno), EvdFlags::SOFTWARE).unwrap()
        })
        .collect();
    let mut deferred = Deferred::default();
    for &evd in &pairs {
        let event = Event::Software { pointer: 1 };
        let outcome = ia.with_evd(evd, &mut deferred, |queue, deferred| {
            queue.push_unsolicited(&event, &ia.shared, deferred);
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
    }
    let outcome = ia.with_evd(pairs[0], &mut deferred, |queue, deferred| {
        queue.note_overflow(false, deferred);
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    ia.run_deferred(&mut deferred);
    let (_, waker) = WakeCount::new();
    assert_eq!(
        ia.cno_wait(own).unwrap().poll(&waker),
        Poll::Ready(Ok(Some(ia.async_evd())))
    );
    assert_eq!(
        reports(&ia),
        [(AsyncEventKind::EvdOverflow, pairs[0].handle())]
    );
}
