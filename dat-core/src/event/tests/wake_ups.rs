//! Wake-ups by completions, and completions that wake no waiter.

use core::task::Poll;

use super::connected::*;
use super::{code, push};
use crate::attributes::EpAttributes;
use crate::backend::{Completion, ControlEvent};
use crate::error::{ErrorKind, Subtype};
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, EvdFields, EvdFlags, EvdState};
use crate::testing::{TestBackend, TestStorage, WakeCount, open};

/// Spec: EVW-01, EVW-07
#[test]
fn completions_count_towards_the_threshold_wherever_they_are() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let (wakes, waker) = WakeCount::new();
    for cookie in 1..=4 {
        send(&ia, peer.ep, cookie);
    }
    let mut wait = ia.evd_wait(evd, 3).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(number(evd)), Some(false));
    for _ in 0..2 {
        succeed(&device, peer.key);
        progress(&ia);
        assert_eq!(wakes.take(), 0);
        // The threshold is not reached, so the queue is armed again.
        assert_eq!(device.armed(number(evd)), Some(false));
        assert!(wait.poll(&waker).is_pending());
    }
    ia.evd_post_se(evd, 101).unwrap();
    assert_eq!(wakes.take(), 1);
    succeed(&device, peer.key);
    assert_eq!(ready(wait.poll(&waker)), (1, 3));
    assert_eq!(tags(&ia, evd), [2, 101, 3]);
}

/// Spec: EVW-01, EVW-09
#[test]
fn the_device_is_not_armed_for_a_waiter_that_has_what_it_waits_for() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let (wakes, waker) = WakeCount::new();
    for cookie in 1..=3 {
        send(&ia, peer.ep, cookie);
    }
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!((wakes.take(), device.armed(number(evd))), (1, None));
    succeed(&device, peer.key);
    assert_eq!(ready(wait.poll(&waker)), (1, 1));
    drop(wait);
    assert_eq!(device.armed(number(evd)), None, "no waiter needs the event");
    // The next wait that has to sleep arms the queue.
    let mut wait = ia.evd_wait(evd, 2).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(number(evd)), Some(false));
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(wait.poll(&waker)), (2, 1));
}

/// The queue is not armed for a failing wait or for one never polled.
///
/// The first fails because events were lost; the end of an endpoint does not arm for the second.
///
/// Spec: EVW-10, EVW-11
#[test]
fn the_device_is_not_armed_for_nobody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(2, None, SHARED).unwrap();
    let (_, waker) = WakeCount::new();
    for pointer in 0..3 {
        push(&ia, evd, &Event::Software { pointer });
    }
    for pointer in 0..2 {
        let mut wait = ia.evd_wait(evd, 1).unwrap();
        assert_eq!(ready(wait.poll(&waker)).0, pointer);
    }
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(matches!(wait.poll(&waker), Poll::Ready(Err(_))));
    assert_eq!(device.armed(number(evd)), None);

    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    let wait = ia.evd_wait(evd, 1).unwrap();
    ia.ep_free(peer.ep).unwrap();
    assert_eq!(device.armed(number(evd)), None);
    drop(wait);
}

/// Spec: EVW-01, EVW-09
#[test]
fn a_completion_that_slips_in_while_arming_is_not_slept_over() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let (_, waker) = WakeCount::new();
    send(&ia, peer.ep, 1);
    let token = device.posted(peer.key).0[0].work.token();
    let completion = Completion {
        token,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: peer.ep.handle().to_raw(),
        solicited: false,
    };
    device.inject_before_arming(number(evd), completion);
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert_eq!(ready(wait.poll(&waker)), (1, 0));
    drop(wait);
}

/// Spec: EVW-01
#[test]
fn a_device_too_busy_to_be_armed_keeps_the_waiter_awake() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let (wakes, waker) = WakeCount::new();
    for _ in 0..20 {
        device.inject_before_arming(
            number(evd),
            Completion {
                token: u64::MAX,
                status: DtoStatus::Success,
                length: 0,
                queue_pair: 0,
                solicited: false,
            },
        );
    }
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!((wakes.take(), device.armed(number(evd))), (1, None));
    assert!(wait.poll(&waker).is_pending());
    assert_eq!((wakes.take(), device.armed(number(evd))), (0, Some(false)));
}

/// Completions that arrive during each attempt to arm do not keep the queue unarmed.
///
/// The consumer that drains a dispatcher for its notification object does not arm it.
///
/// Spec: CNW-01, EVN-01
#[test]
fn a_busy_device_is_armed_for_the_notification_object() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(40, Some(cno), SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 0..16 {
        send(&ia, peer.ep, cookie);
    }
    // One completion raises the device's event. While it is handled, ten unknown ones and all
    // others arrive.
    let posted = device.posted(peer.key).0;
    let others = posted.iter().skip(1).map(|request| request.work.token());
    for token in [u64::MAX; 10].into_iter().chain(others) {
        device.inject_before_arming(
            number(evd),
            Completion {
                token,
                status: DtoStatus::Success,
                length: 0,
                queue_pair: peer.ep.handle().to_raw(),
                solicited: false,
            },
        );
    }
    succeed(&device, peer.key);
    progress(&ia);
    assert!(cno_fired(&ia, cno));
    assert_eq!(tags(&ia, evd), (0..16).collect::<std::vec::Vec<_>>());
    assert_eq!(device.armed(number(evd)), Some(false));
}

/// Spec: CNW-01, CNW-02, EVN-01
#[test]
fn completions_trigger_the_notification_object() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    let arrive = |cookie| {
        send(&ia, peer.ep, cookie);
        succeed(&device, peer.key);
        progress(&ia);
    };
    for cookie in 1..=3 {
        arrive(cookie);
        assert!(cno_fired(&ia, cno));
        assert!(!cno_fired(&ia, cno));
    }
    assert_eq!(tags(&ia, evd), [1, 2, 3]);
    // Dequeued before the device's event is handled: no notification is due.
    send(&ia, peer.ep, 4);
    succeed(&device, peer.key);
    assert_eq!(tags(&ia, evd), [4]);
    progress(&ia);
    assert!(!cno_fired(&ia, cno));
    // While disabled, the device raises one more event and is not armed again.
    ia.evd_disable(evd).unwrap();
    arrive(5);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(device.armed(number(evd)), None);
    // Enabling arms the queue: the completion before it may notify, later ones must.
    ia.evd_enable(evd).unwrap();
    assert_eq!(device.armed(number(evd)), Some(false));
    arrive(6);
    assert!(cno_fired(&ia, cno));
    // A direct waiter gets the notifications; the object stays as it was.
    assert_eq!(tags(&ia, evd), [5, 6]);
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    arrive(7);
    assert_eq!(wakes.take(), 1);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(ready(wait.poll(&waker)), (7, 0));
    arrive(8);
    assert!(cno_fired(&ia, cno));
    // Detached and attached again.
    ia.evd_modify_cno(evd, None).unwrap();
    arrive(9);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(tags(&ia, evd), [8, 9]);
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    arrive(10);
    assert!(cno_fired(&ia, cno));
}

/// Spec: EVW-03, EVW-11, EVQ-02, DTO-04
#[test]
fn unsignalled_completions_wake_nobody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create(8, Some(cno), SHARED).unwrap();
    let attributes = EpAttributes {
        request_completion_flags: CompletionFlags::UNSIGNALLED,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, None, Some(evd), &attributes);
    let param = ia.evd_query(evd, EvdFields::STATE).unwrap();
    assert_eq!(param.state.configuration(), EvdState::CONFIG_NOTIFY);
    assert_eq!(
        code(ia.evd_wait(evd, 2).unwrap_err()),
        (
            ErrorKind::InvalidState,
            Subtype::InvalidStateEvdConfigNotify
        )
    );
    let quiet = |cookie, status| {
        ia.post_send(peer.ep, &[], cookie, CompletionFlags::UNSIGNALLED)
            .unwrap();
        assert!(device.complete_request(peer.key, status));
        progress(&ia);
    };
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    quiet(1, DtoStatus::Success);
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    send(&ia, peer.ep, 2);
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!(wakes.take(), 1);
    // The unsignalled completion is returned too, in its order.
    assert_eq!(ready(wait.poll(&waker)), (1, 1));
    drop(wait);
    // An event that is queued when a wait begins is returned at once.
    assert_eq!(ready(ia.evd_wait(evd, 1).unwrap().poll(&waker)), (2, 0));
    quiet(3, DtoStatus::Success);
    assert!(!cno_fired(&ia, cno));
    assert_eq!(ready(ia.evd_wait(evd, 1).unwrap().poll(&waker)), (3, 0));
    // A failure always notifies.
    quiet(4, DtoStatus::RemoteAccess);
    assert!(cno_fired(&ia, cno));
}

/// Spec: EVW-03, EVW-11, EVQ-02, EPC-06, DTO-04
#[test]
fn solicited_dispatchers_hear_of_solicited_receives_only() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    assert_eq!(
        code(ia.evd_wait(evd, 2).unwrap_err()),
        (
            ErrorKind::InvalidState,
            Subtype::InvalidStateEvdConfigSolicited
        )
    );
    for cookie in 1..=4 {
        ia.post_recv(peer.ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(number(evd)), Some(true));
    device.complete_receive(peer.key, DtoStatus::Success, 0, false);
    progress(&ia);
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    device.complete_receive(peer.key, DtoStatus::Success, 0, true);
    progress(&ia);
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(wait.poll(&waker)), (1, 1));
    drop(wait);
    assert_eq!(tags(&ia, evd), [2]);

    // The queue is armed for solicited completions. With the next stream, all completions notify.
    let cno = ia.cno_create(None).unwrap();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    drop(wait);
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    assert_eq!(device.armed(number(evd)), Some(true));
    ia.ep_free(peer.ep).unwrap();
    assert_eq!(device.armed(number(evd)), Some(false));
    let peer = connected(&ia, &device, Some(evd), None, &EpAttributes::DEFAULT);
    ia.post_recv(peer.ep, &[], 9, CompletionFlags::empty())
        .unwrap();
    device.complete_receive(peer.key, DtoStatus::Success, 0, false);
    progress(&ia);
    assert!(cno_fired(&ia, cno));
}

/// A solicited receive notifies, even if it was polled as unsolicited.
///
/// The device reports only that one of the receives was solicited.
///
/// Spec: EVW-08, EVW-11
#[test]
fn a_solicited_receive_that_was_taken_for_another_still_notifies() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    for cookie in 1..=4 {
        ia.post_recv(peer.ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }
    let queue = number(evd);
    let quiet = || assert!(device.complete_receive(peer.key, DtoStatus::Success, 0, false));
    let heard = |event| {
        device.push_control(event);
        progress(&ia);
    };

    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert_eq!(device.armed(queue), Some(true));
    quiet();
    assert!(wait.poll(&waker).is_pending());
    heard(ControlEvent::Completions { queue });
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    heard(ControlEvent::SolicitedCompletions { queue });
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(wait.poll(&waker)), (1, 0));
    drop(wait);

    let cno = ia.cno_create(None).unwrap();
    ia.evd_modify_cno(evd, Some(cno)).unwrap();
    quiet();
    ia.evd_resize(evd, 6).unwrap();
    assert!(!cno_fired(&ia, cno));
    heard(ControlEvent::SolicitedCompletions { queue });
    assert!(cno_fired(&ia, cno));
    assert_eq!(tags(&ia, evd), [2]);

    // A dequeued receive needs no notification.
    quiet();
    assert_eq!(tags(&ia, evd), [3]);
    heard(ControlEvent::SolicitedCompletions { queue });
    assert!(!cno_fired(&ia, cno));
    assert_eq!(device.armed(queue), Some(true));
}

/// Spec: DTO-04, EVG-01
#[test]
fn suppressed_successes_make_no_event_and_failures_do() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 1..=3 {
        ia.post_send(peer.ep, &[], cookie, CompletionFlags::SUPPRESS)
            .unwrap();
    }
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    succeed(&device, peer.key);
    progress(&ia);
    assert_eq!(wakes.take(), 0);
    drop(wait);
    succeed(&device, peer.key);
    assert_eq!(
        ia.evd_dequeue(evd).unwrap_err().kind(),
        ErrorKind::QueueEmpty
    );
    device.break_pair(peer.key);
    assert_eq!(tags(&ia, evd), [3]);
}

/// A receive is unsignalled only if its own post says so.
///
/// Spec: EVW-11, DTO-04, DTO-05
#[test]
fn unsignalled_receives_wake_nobody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        ..EpAttributes::DEFAULT
    };
    let peer = connected(&ia, &device, Some(evd), None, &attributes);
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    for (cookie, flags, woken) in [
        (1, CompletionFlags::UNSIGNALLED, 0),
        (2, CompletionFlags::UNSIGNALLED, 0),
        (3, CompletionFlags::empty(), 1),
    ] {
        ia.post_recv(peer.ep, &[], cookie, flags).unwrap();
        assert!(wait.poll(&waker).is_pending());
        assert!(device.complete_receive(peer.key, DtoStatus::Success, 0, false));
        progress(&ia);
        assert_eq!(wakes.take(), woken, "{cookie}");
    }
    assert_eq!(ready(wait.poll(&waker)), (1, 2));
    drop(wait);
    assert_eq!(tags(&ia, evd), [2, 3]);
}
