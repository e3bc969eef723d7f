use core::task::Poll;

use std::format;

use super::{code, drain};
use crate::error::{ErrorKind, Result, Subtype};
use crate::event::{Deferred, Event, Expired, Waited};
use crate::flags::EvdFlags;
use crate::testing::{ScriptedWait, TestBackend, TestStorage, WakeCount, open};
use crate::time::Instant;

#[track_caller]
fn ready(poll: Poll<Result<Waited>>) -> (u64, u32) {
    match poll {
        Poll::Ready(Ok(Waited {
            event: Event::Software { pointer },
            more,
        })) => (pointer, more),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused<T: core::fmt::Debug>(poll: Poll<Result<T>>) -> (ErrorKind, Subtype) {
    match poll {
        Poll::Ready(Err(error)) => code(error),
        other => panic!("{other:?}"),
    }
}

/// Spec: EVW-01, EVW-07, EVW-09
#[test]
fn a_wait_returns_the_first_event_once_the_threshold_is_reached() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 3).unwrap();
    assert!(wait.poll(&waker).is_pending());
    for pointer in [1, 2] {
        ia.evd_post_se(evd, pointer).unwrap();
        assert_eq!(wakes.take(), 0);
        assert!(wait.poll(&waker).is_pending());
    }
    ia.evd_post_se(evd, 3).unwrap();
    assert_eq!(wakes.take(), 1);
    ia.evd_post_se(evd, 4).unwrap();
    assert_eq!(ready(wait.poll(&waker)), (1, 3));
    // The wait has ended; another poll fails.
    assert_eq!(refused(wait.poll(&waker)).0, ErrorKind::Abort);
    let mut wait = ia.evd_wait(evd, 3).unwrap();
    assert_eq!(ready(wait.poll(&waker)), (2, 2));
    drop(wait);
    assert_eq!(drain(&ia, evd), [3, 4]);
}

/// Spec: EVW-01
#[test]
fn a_wait_shows_what_it_waits_on() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let shown = format!("{:?}", ia.evd_wait(evd, 1).unwrap());
    assert_eq!(shown, format!("EvdWait {{ evd: {evd:?}, .. }}"));
}

/// Spec: EVW-02
#[test]
fn thresholds_are_bounded_by_the_queue() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    for threshold in [0, -1, i32::MIN, 9, i32::MAX] {
        assert_eq!(
            code(ia.evd_wait(evd, threshold).unwrap_err()),
            (ErrorKind::InvalidParameter, Subtype::argument(3))
        );
    }
    drop(ia.evd_wait(evd, 8).unwrap());
    let wait = ia.evd_wait(evd, 8).unwrap();
    assert_eq!(
        code(ia.evd_resize(evd, 7).unwrap_err()),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdWaiter)
    );
    drop(wait);
    ia.evd_resize(evd, 7).unwrap();
}

/// Spec: EVW-04, EVG-02
#[test]
fn the_waiter_owns_the_dispatcher() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    ia.evd_post_se(evd, 1).unwrap();
    let wait = ia.evd_wait(evd, 2).unwrap();
    let owned = (ErrorKind::InvalidState, Subtype::InvalidStateEvdWaiter);
    assert_eq!(code(ia.evd_wait(evd, 1).unwrap_err()), owned);
    assert_eq!(code(ia.evd_dequeue(evd).unwrap_err()), owned);
    drop(wait);
    assert_eq!(drain(&ia, evd), [1]);
}

/// Spec: EVW-06, EVW-09
#[test]
fn a_wait_that_ends_early_takes_nothing() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 2).unwrap();
    assert!(wait.poll(&waker).is_pending());
    ia.evd_post_se(evd, 1).unwrap();
    assert_eq!(wait.expire(), Err(Expired { queued: 1 }));
    let mut wait = ia.evd_wait(evd, 2).unwrap();
    assert!(wait.poll(&waker).is_pending());
    ia.evd_post_se(evd, 2).unwrap();
    assert_eq!(wakes.take(), 1);
    // Dropped between the wake-up and the poll: both events stay queued.
    drop(wait);
    assert_eq!(drain(&ia, evd), [1, 2]);
}

/// Spec: EVN-04, EVN-05, EVW-05
#[test]
fn making_a_dispatcher_unwaitable_releases_the_waiter() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 2).unwrap();
    assert!(wait.poll(&waker).is_pending());
    ia.evd_post_se(evd, 1).unwrap();
    ia.evd_set_unwaitable(evd).unwrap();
    assert_eq!(wakes.take(), 1);
    let unwaitable = (ErrorKind::InvalidState, Subtype::InvalidStateEvdUnwaitable);
    assert_eq!(code(ia.evd_wait(evd, 1).unwrap_err()), unwaitable);
    // Dequeues work, even before the waiter has noticed.
    assert_eq!(ia.evd_dequeue(evd), Ok(Event::Software { pointer: 1 }));
    // New waits are allowed, but the released one stays released.
    ia.evd_clear_unwaitable(evd).unwrap();
    let other = ia.evd_wait(evd, 1).unwrap();
    assert_eq!(refused(wait.poll(&waker)), unwaitable);
    drop(wait);
    assert_eq!(
        code(ia.evd_wait(evd, 1).unwrap_err()).1,
        Subtype::InvalidStateEvdWaiter
    );
    drop(other);
}

/// Spec: EVW-10, IAC-02
#[test]
fn a_waiter_learns_that_its_dispatcher_was_destroyed() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    let mut deferred = Deferred::default();
    ia.control.with(|control| {
        ia.destroy_evd_at(control, evd.handle().slot(), &mut deferred);
    });
    ia.run_deferred(&mut deferred);
    assert_eq!(wakes.take(), 1);
    // The old wait does not affect the next dispatcher in the slot or its waiter.
    let next = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    ia.evd_post_se(next, 5).unwrap();
    let mut other = ia.evd_wait(next, 1).unwrap();
    assert_eq!(refused(wait.poll(&waker)).0, ErrorKind::Abort);
    drop(wait);
    assert_eq!(ready(other.poll(&waker)), (5, 0));
}

/// Spec: EVW-01, EVW-06, EVW-07, EVW-10, GEN-09
#[test]
fn the_blocking_form_sleeps_until_event_deadline_or_interruption() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let deadline = Instant::from_micros(50);

    let mut wait = ScriptedWait::at(10)
        .then(|| ia.evd_post_se(evd, 1).unwrap())
        .then(|| ia.evd_post_se(evd, 2).unwrap());
    let waited = ia.evd_wait_until(evd, 2, Some(deadline), &mut wait);
    assert_eq!(
        waited,
        Ok(Waited {
            event: Event::Software { pointer: 1 },
            more: 1
        })
    );
    assert_eq!(wait.asked, [Some(deadline), Some(deadline)]);

    let mut wait = ScriptedWait::at(10);
    let error = ia
        .evd_wait_until(evd, 2, Some(deadline), &mut wait)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimeoutExpired);
    assert_eq!(wait.now, deadline);

    // A deadline in the past makes the wait a poll: it does not sleep.
    let mut wait = ScriptedWait::at(60);
    let error = ia
        .evd_wait_until(evd, 2, Some(deadline), &mut wait)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimeoutExpired);
    assert_eq!(wait.asked, []);

    let mut wait = ScriptedWait::at(0);
    wait.interrupted = true;
    let error = ia.evd_wait_until(evd, 2, None, &mut wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InterruptedCall);
    assert_eq!(wait.asked, [None]);

    // The device's deadline is earlier than the wait's.
    device.set_deadline(Some(Instant::from_micros(30)));
    let mut wait = ScriptedWait::at(10);
    let error = ia
        .evd_wait_until(evd, 2, Some(deadline), &mut wait)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimeoutExpired);
    assert_eq!(wait.asked, [Some(Instant::from_micros(30)), Some(deadline)]);
    assert_eq!(drain(&ia, evd), [2]);
}

/// Spec: EVW-01
#[test]
fn a_wait_is_a_future() {
    use core::future::Future;
    use core::pin::pin;
    use core::task::Context;
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(async { ia.evd_wait(evd, 1)?.await });
    assert!(future.as_mut().poll(&mut context).is_pending());
    ia.evd_post_se(evd, 7).unwrap();
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(future.as_mut().poll(&mut context)), (7, 0));
}

/// Spec: EVW-01, EVW-06
#[cfg(feature = "std")]
#[test]
fn threads_park_until_another_thread_posts() {
    use crate::event::ThreadWait;
    use crate::sync::HostLock;
    use crate::testing::Slots;
    let mut storage = Slots::<HostLock>::new();
    let ia = crate::adapter::Ia::open(TestBackend::default(), storage.lend(), 1).unwrap();
    let evd = ia.evd_create(8, None, EvdFlags::SOFTWARE).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            (0..100)
                .map(|_| {
                    ia.evd_wait_until(evd, 1, None, &mut ThreadWait::new())
                        .unwrap()
                        .event
                })
                .collect::<std::vec::Vec<_>>()
        });
        for pointer in 0..100 {
            while ia.evd_post_se(evd, pointer).is_err() {
                std::thread::yield_now();
            }
        }
        let events = waiter.join().unwrap();
        let expected: std::vec::Vec<_> = (0..100)
            .map(|pointer| Event::Software { pointer })
            .collect();
        assert_eq!(events, expected);
    });
    let past = Some(Instant::ZERO);
    let error = ia
        .evd_wait_until(evd, 1, past, &mut ThreadWait::new())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimeoutExpired);
}
