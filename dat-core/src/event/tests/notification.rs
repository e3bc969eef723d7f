use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Poll;

use std::format;

use super::{code, drain};
use crate::error::{ErrorKind, Result, Subtype};
use crate::event::{Deferred, ProxyAgent};
use crate::flags::{CnoFields, EvdFlags};
use crate::id::{CnoId, EvdId};
use crate::testing::{ScriptedWait, TestBackend, TestStorage, WakeCount, open};
use crate::time::Instant;

#[track_caller]
fn fired(poll: Poll<Result<Option<EvdId>>>) -> Option<EvdId> {
    match poll {
        Poll::Ready(Ok(evd)) => evd,
        other => panic!("{other:?}"),
    }
}

/// Counts its calls in `COUNTS[instance_data]`: low half with, high half without a dispatcher.
fn counting(instance_data: u64, evd: Option<EvdId>) {
    let table = &COUNTS[instance_data as usize];
    let step = if evd.is_some() { 1 } else { 1 << 32 };
    table.fetch_add(step, Ordering::Relaxed);
}

/// One word per test that uses an agent.
static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn agent(instance_data: u64) -> Option<ProxyAgent> {
    Some(ProxyAgent {
        function: counting,
        instance_data,
    })
}

fn calls(instance_data: u64) -> (u32, u32) {
    let word = COUNTS[instance_data as usize].swap(0, Ordering::Relaxed);
    (word as u32, (word >> 32) as u32)
}

/// Spec: CNW-01, CNW-03, CNW-04, CNW-06, CNW-07
#[test]
fn a_trigger_is_remembered_and_taken_once() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let (_, waker) = WakeCount::new();
    for pointer in [1, 2, 3] {
        ia.evd_post_se(evd, pointer).unwrap();
    }
    // Without a waiter, three notifications are one pending notification.
    assert_eq!(fired(ia.cno_wait(cno).unwrap().poll(&waker)), Some(evd));
    assert!(ia.cno_wait(cno).unwrap().poll(&waker).is_pending());
    assert_eq!(drain(&ia, evd), [1, 2, 3]);

    let deadline = Some(Instant::from_micros(20));
    let mut wait = ScriptedWait::at(10);
    let error = ia.cno_wait_until(cno, deadline, &mut wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueEmpty);
    let mut wait = ScriptedWait::at(10).then(|| ia.evd_post_se(evd, 4).unwrap());
    assert_eq!(ia.cno_wait_until(cno, deadline, &mut wait), Ok(Some(evd)));
    let mut wait = ScriptedWait::at(10);
    wait.interrupted = true;
    let error = ia.cno_wait_until(cno, None, &mut wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InterruptedCall);
}

/// Spec: CNW-01
#[test]
fn a_wait_shows_what_it_waits_on() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let shown = format!("{:?}", ia.cno_wait(cno).unwrap());
    assert_eq!(shown, format!("CnoWait {{ cno: {cno:?}, .. }}"));
}

/// Spec: CNW-06
#[test]
fn each_notification_releases_one_of_several_waiters() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(32, Some(cno), EvdFlags::SOFTWARE).unwrap();
    // More waiters than wakers have room: the waiters take turns, and each is woken in the end.
    let mut waiters: std::vec::Vec<_> = (0..12)
        .map(|_| (ia.cno_wait(cno).unwrap(), WakeCount::new()))
        .collect();
    for (wait, (_, waker)) in &mut waiters {
        assert!(wait.poll(waker).is_pending());
    }
    for expected in (0..12).rev() {
        ia.evd_post_se(evd, 1).unwrap();
        let mut rounds = 0;
        let before = waiters.len();
        while waiters.len() == before {
            rounds += 1;
            assert!(rounds < 100, "no waiter was woken");
            let woken = waiters
                .iter_mut()
                .position(|(_, (wakes, _))| wakes.take() != 0);
            let Some(woken) = woken else { continue };
            let (wait, (_, waker)) = &mut waiters[woken];
            if wait.poll(waker).is_ready() {
                waiters.remove(woken);
            }
        }
        assert_eq!(waiters.len(), expected);
    }
    assert!(
        ia.cno_wait(cno)
            .unwrap()
            .poll(&WakeCount::new().1)
            .is_pending()
    );
}

/// Spec: CNW-06
#[test]
fn a_dropped_waiter_passes_its_notification_on() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let ((wakes_one, waker_one), (wakes_two, waker_two)) = (WakeCount::new(), WakeCount::new());
    let mut one = ia.cno_wait(cno).unwrap();
    let mut two = ia.cno_wait(cno).unwrap();
    assert!(one.poll(&waker_one).is_pending());
    assert!(two.poll(&waker_two).is_pending());
    ia.evd_post_se(evd, 1).unwrap();
    let (woken, mut other, wakes, waker) = if wakes_one.take() == 1 {
        (one, two, wakes_two, waker_two)
    } else {
        assert_eq!(wakes_two.take(), 1);
        (two, one, wakes_one, waker_one)
    };
    assert_eq!(wakes.take(), 0);
    drop(woken);
    assert_eq!(wakes.take(), 1);
    assert_eq!(fired(other.poll(&waker)), Some(evd));
}

/// A notification does not wake a waker whose wait has ended or moved.
///
/// Spec: CNW-06
#[test]
fn a_notification_wakes_somebody_who_still_waits() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let ((wakes_one, waker_one), (wakes_two, waker_two)) = (WakeCount::new(), WakeCount::new());
    let mut one = ia.cno_wait(cno).unwrap();
    let mut two = ia.cno_wait(cno).unwrap();
    assert!(one.poll(&waker_one).is_pending());
    assert!(two.poll(&waker_two).is_pending());
    drop(one);
    ia.evd_post_se(evd, 1).unwrap();
    assert_eq!((wakes_one.take(), wakes_two.take()), (0, 1));
    assert_eq!(fired(two.poll(&waker_two)), Some(evd));

    // A wait that moved to another task is woken there.
    let mut moved = ia.cno_wait(cno).unwrap();
    assert!(moved.poll(&waker_one).is_pending());
    assert!(moved.poll(&waker_two).is_pending());
    ia.evd_post_se(evd, 2).unwrap();
    assert_eq!((wakes_one.take(), wakes_two.take()), (0, 1));
    assert_eq!(fired(moved.poll(&waker_two)), Some(evd));
}

/// Spec: CNW-02, EVN-01, EVN-02, EVN-03, EVW-04
#[test]
fn disabled_and_waited_on_dispatchers_do_not_notify() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let (_, waker) = WakeCount::new();
    let poll = || ia.cno_wait(cno).unwrap().poll(&waker);
    ia.evd_disable(evd).unwrap();
    ia.evd_post_se(evd, 1).unwrap();
    assert!(poll().is_pending());
    ia.evd_enable(evd).unwrap();
    ia.evd_post_se(evd, 2).unwrap();
    assert_eq!(fired(poll()), Some(evd));
    let wait = ia.evd_wait(evd, 8).unwrap();
    ia.evd_post_se(evd, 3).unwrap();
    assert!(poll().is_pending());
    drop(wait);
    ia.evd_set_unwaitable(evd).unwrap();
    ia.evd_post_se(evd, 4).unwrap();
    assert_eq!(fired(poll()), Some(evd));
    ia.evd_modify_cno(evd, None).unwrap();
    ia.evd_post_se(evd, 5).unwrap();
    assert!(poll().is_pending());
}

/// Spec: CNC-02, CNM-01, CNQ-01, GEN-08
#[test]
fn an_agent_is_called_once_for_each_association() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(agent(0)).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let query = || ia.cno_query(cno, CnoFields::all()).unwrap();
    assert_eq!(query().ia, ia.handle());
    assert!(query().agent.is_some());
    ia.evd_post_se(evd, 1).unwrap();
    ia.evd_post_se(evd, 2).unwrap();
    assert_eq!(calls(0), (1, 0));
    assert!(query().agent.is_none());
    // A former agent is returned only if it will not be called.
    assert!(ia.cno_modify_agent(cno, agent(0)).unwrap().is_none());
    ia.evd_post_se(evd, 3).unwrap();
    assert_eq!(calls(0), (1, 0));
    assert!(ia.cno_modify_agent(cno, agent(0)).unwrap().is_none());
    assert!(ia.cno_modify_agent(cno, None).unwrap().is_some());
    ia.evd_post_se(evd, 4).unwrap();
    assert_eq!(calls(0), (0, 0));
    let error = ia
        .cno_query(cno, CnoFields::from_bits_retain(4))
        .unwrap_err();
    assert_eq!(
        code(error),
        (ErrorKind::InvalidParameter, Subtype::argument(2))
    );
}

/// Spec: CNW-05, EVF-04
#[test]
fn the_last_dispatcher_releases_everybody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(agent(1)).unwrap();
    let one = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let two = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let mut waiters: std::vec::Vec<_> = (0..3)
        .map(|_| (ia.cno_wait(cno).unwrap(), WakeCount::new()))
        .collect();
    for (wait, (_, waker)) in &mut waiters {
        assert!(wait.poll(waker).is_pending());
    }
    ia.evd_free(one).unwrap();
    for (wait, (wakes, waker)) in &mut waiters {
        assert_eq!(wakes.take(), 0);
        assert!(wait.poll(waker).is_pending());
    }
    assert_eq!(calls(1), (0, 0));
    ia.evd_free(two).unwrap();
    for (wait, (wakes, waker)) in &mut waiters {
        assert_eq!(wakes.take(), 1);
        assert_eq!(fired(wait.poll(waker)), None);
    }
    assert_eq!(calls(1), (0, 1));
    // The object stays usable, without pending notifications.
    let three = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let (_, waker) = WakeCount::new();
    assert!(ia.cno_wait(cno).unwrap().poll(&waker).is_pending());
    ia.evd_post_se(three, 1).unwrap();
    assert_eq!(fired(ia.cno_wait(cno).unwrap().poll(&waker)), Some(three));
}

/// A notification survives the free of the dispatcher that fired last.
///
/// An earlier notification of another dispatcher must not be lost with it.
///
/// Spec: CNW-01, CNW-02, CNW-03, EVF-04
#[test]
fn notification_survives_the_free_of_another_dispatcher() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let [disabled, idle, stays, goes] =
        [(); 4].map(|()| ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap());
    ia.evd_disable(disabled).unwrap();
    ia.evd_post_se(disabled, 0).unwrap();
    let (_, waker) = WakeCount::new();
    let poll = || ia.cno_wait(cno).unwrap().poll(&waker);
    ia.evd_post_se(stays, 1).unwrap();
    ia.evd_post_se(goes, 2).unwrap();
    ia.evd_free(goes).unwrap();
    assert_eq!(fired(poll()), Some(stays), "its event is queued");
    assert_eq!(drain(&ia, stays), [1]);
    assert!(poll().is_pending());

    // Two waiters are woken and have not polled when the dispatcher that fired last is freed.
    let mut waits = [(); 2].map(|()| ia.cno_wait(cno).unwrap());
    for wait in &mut waits {
        assert!(wait.poll(&waker).is_pending());
    }
    ia.evd_post_se(stays, 3).unwrap();
    ia.evd_post_se(idle, 4).unwrap();
    ia.evd_free(idle).unwrap();
    for wait in &mut waits {
        assert_eq!(fired(wait.poll(&waker)), Some(stays));
    }
    assert_eq!(drain(&ia, stays), [3]);

    // A dispatcher that was detached before its free is not reported, with or without another one.
    for (left, hint) in [(true, Some(disabled)), (false, None)] {
        let goes = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
        ia.evd_post_se(goes, 5).unwrap();
        ia.evd_modify_cno(goes, None).unwrap();
        ia.evd_free(goes).unwrap();
        if left {
            ia.evd_modify_cno(stays, None).unwrap();
        } else {
            ia.evd_modify_cno(disabled, None).unwrap();
        }
        assert_eq!(fired(poll()), hint);
        assert!(poll().is_pending());
    }
}

/// Spec: CNF-01, CNC-03, GEN-03
#[test]
fn freeing_needs_an_idle_object() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let in_use = (ErrorKind::InvalidState, Subtype::InvalidStateCnoInUse);
    let wait = ia.cno_wait(cno).unwrap();
    assert_eq!(code(ia.cno_free(cno).unwrap_err()), in_use);
    drop(wait);
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    assert_eq!(code(ia.cno_free(cno).unwrap_err()), in_use);
    ia.evd_modify_cno(evd, None).unwrap();
    ia.cno_free(cno).unwrap();
    let invalid = (ErrorKind::InvalidHandle, Subtype::InvalidHandleCno);
    for dead in [cno, CnoId::NULL, CnoId::from_handle(evd.handle())] {
        let errors = [
            ia.cno_free(dead).err(),
            ia.cno_query(dead, CnoFields::all()).err(),
            ia.cno_modify_agent(dead, None).err(),
            ia.cno_wait(dead).err(),
            ia.evd_modify_cno(evd, Some(dead)).err(),
        ];
        for error in errors {
            assert_eq!(error.map(code), Some(invalid));
        }
    }
    let made: std::vec::Vec<_> = (0..8).map(|_| ia.cno_create(None).unwrap()).collect();
    let error = ia.cno_create(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientResources);
    for cno in made {
        ia.cno_free(cno).unwrap();
    }
}

/// Spec: CNW-05, IAC-02
#[test]
fn a_destroyed_object_aborts_its_waiters() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(agent(2)).unwrap();
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.cno_wait(cno).unwrap();
    assert!(wait.poll(&waker).is_pending());
    let mut deferred = Deferred::default();
    ia.control.with(|control| {
        ia.destroy_cno_at(control, cno.handle().slot(), &mut deferred);
    });
    ia.run_deferred(&mut deferred);
    assert_eq!((wakes.take(), calls(2)), (1, (0, 1)));
    match wait.poll(&waker) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::Abort),
        other => panic!("{other:?}"),
    }
}

/// A waker and an agent that panic keep nobody else from being woken or called.
///
/// Spec: CNW-05, CNW-06, CNC-02
#[cfg(feature = "std")]
#[test]
fn a_panic_of_a_waker_or_an_agent_ends_there() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            std::panic::resume_unwind(std::boxed::Box::new("on purpose"));
        }
    }
    fn panicking(_: u64, _: Option<EvdId>) {
        std::panic::resume_unwind(std::boxed::Box::new("on purpose"));
    }
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let wrong = core::task::Waker::from(std::sync::Arc::new(Panics));
    let agent = ProxyAgent {
        function: panicking,
        instance_data: 0,
    };
    let cno = ia.cno_create(Some(agent)).unwrap();
    let evd = ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let (wakes, right) = WakeCount::new();
    let mut waits: std::vec::Vec<_> = (0..4).map(|_| ia.cno_wait(cno).unwrap()).collect();
    for (wait, waker) in waits.iter_mut().zip([&wrong, &wrong, &right, &right]) {
        assert!(wait.poll(waker).is_pending());
    }
    // The first waiter's waker panics, then the agent; a later agent is still called.
    ia.evd_post_se(evd, 1).unwrap();
    assert!(ia.cno_modify_agent(cno, self::agent(3)).unwrap().is_none());
    ia.evd_free(evd).unwrap();
    assert_eq!((wakes.take(), calls(3)), (2, (0, 1)));
}
