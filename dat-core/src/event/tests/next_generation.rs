//! Waits that outlive their object and meet the next object in its slot.

use core::task::Poll;

use super::push;
use crate::error::{ErrorKind, Result};
use crate::event::{EvdWait, Event, Expired};
use crate::flags::EvdFlags;
use crate::id::{CnoId, EvdId};
use crate::sync::NoLock;
use crate::testing::{TestBackend, TestStorage, WakeCount, open};

#[track_caller]
fn aborted<T: core::fmt::Debug>(poll: Poll<Result<T>>) {
    match poll {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::Abort),
        other => panic!("{other:?}"),
    }
}

/// Use of a wait on an earlier dispatcher of the slot.
type Leftover = fn(EvdWait<'_, '_, TestBackend, NoLock>);

/// Spec: EVW-10, EVW-04, EVF-01, GEN-03
#[test]
fn a_wait_has_no_part_in_the_next_dispatcher_of_its_slot() {
    let polls: Leftover = |mut wait| {
        let (wakes, waker) = WakeCount::new();
        aborted(wait.poll(&waker));
        aborted(wait.poll(&waker));
        assert_eq!(wakes.take(), 0);
    };
    let leftovers: [Leftover; 3] = [
        polls,
        |wait| assert_eq!(wait.expire(), Err(Expired { queued: 0 })),
        |wait| drop(wait),
    ];
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    // A threshold of 1 has a fast path.
    for threshold in [1, 2] {
        for leftover in leftovers {
            let mut stale = std::vec::Vec::new();
            let mut lives: std::vec::Vec<EvdId> = std::vec::Vec::new();
            for _ in 0..3 {
                let evd = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
                stale.push(ia.evd_wait(evd, threshold).unwrap());
                // Released, but not polled since.
                ia.evd_set_unwaitable(evd).unwrap();
                ia.evd_free(evd).unwrap();
                lives.push(evd);
            }
            let evd = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
            assert!(lives.iter().all(|old| old.index() == evd.index()));
            let (wakes, waker) = WakeCount::new();
            let mut wait = ia.evd_wait(evd, threshold).unwrap();
            assert!(wait.poll(&waker).is_pending());
            for pointer in 1..=2 {
                ia.evd_post_se(evd, pointer).unwrap();
            }
            assert_eq!(wakes.take(), 1);
            for old in stale {
                leftover(old);
            }
            // The present wait is still the only waiter, and it gets both events.
            assert!(ia.evd_wait(evd, 1).is_err());
            let Poll::Ready(Ok(waited)) = wait.poll(&waker) else {
                panic!("the condition holds");
            };
            assert_eq!(waited.event, Event::Software { pointer: 1 });
            assert_eq!(waited.more, 1);
            drop(wait);
            ia.evd_dequeue(evd).unwrap();
            ia.evd_free(evd).unwrap();
        }
    }
}

/// An event for a freed dispatcher does not reach the next dispatcher in its slot.
///
/// Spec: EVF-01, GEN-03
#[test]
fn an_event_has_no_part_in_the_next_dispatcher_of_its_slot() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let life = || ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
    let earlier = life();
    ia.evd_free(earlier).unwrap();
    let evd = life();
    assert_eq!(earlier.index(), evd.index());
    let event = Event::Software { pointer: 1 };
    for (to, arrives) in [(earlier, false), (EvdId::NULL, false), (evd, true)] {
        push(&ia, to, &event);
        assert_eq!(ia.evd_dequeue(evd).ok(), arrives.then_some(event));
    }
}

/// Spec: CNW-05, CNW-06, CNF-01, GEN-03
#[test]
fn a_wait_has_no_part_in_the_next_notification_object_of_its_slot() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let mut lives: std::vec::Vec<CnoId> = std::vec::Vec::new();
    let mut stale = std::vec::Vec::new();
    let (early, old_waker) = WakeCount::new();
    for polled in [true, false, true, false] {
        let cno = ia.cno_create(None).unwrap();
        let evd = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
        let mut wait = ia.cno_wait(cno).unwrap();
        if polled {
            assert!(wait.poll(&old_waker).is_pending());
        }
        // The free of the last dispatcher releases the waiter, which has not noticed yet.
        ia.evd_free(evd).unwrap();
        ia.cno_free(cno).unwrap();
        assert_eq!(early.take(), usize::from(polled));
        lives.push(cno);
        stale.push(wait);
    }
    let cno = ia.cno_create(None).unwrap();
    assert!(lives.iter().all(|old| old.index() == cno.index()));
    let evd = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.cno_wait(cno).unwrap();
    assert!(wait.poll(&waker).is_pending());
    ia.evd_post_se(evd, 1).unwrap();
    assert_eq!(wakes.take(), 1);
    for (number, mut old) in stale.into_iter().enumerate() {
        if number < 2 {
            aborted(old.poll(&old_waker));
        }
        drop(old);
    }
    // Both the notification and the waiter are still there.
    assert_eq!((early.take(), wakes.take()), (0, 0));
    ia.evd_modify_cno(evd, None).unwrap();
    assert!(ia.cno_free(cno).is_err());
    assert_eq!(wait.poll(&waker), Poll::Ready(Ok(Some(evd))));
    ia.cno_free(cno).unwrap();
}
