//! Blocking waits that sleep once and take the event that woke them.

use core::task::Waker;
use std::boxed::Box;
use std::sync::Arc;

use super::connected::*;
use crate::attributes::EpAttributes;
use crate::error::{ErrorKind, Subtype};
use crate::event::{Wait, WakeReason};
use crate::testing::{TestBackend, TestStorage, WakeCount, open};
use crate::time::Instant;

/// A wait whose sleep runs a closure. Its clock panics: without a deadline, the time is not read.
struct Untimed<'a> {
    wakes: Arc<WakeCount>,
    waker: Waker,
    asleep: Box<dyn FnMut() + 'a>,
    sleeps: u32,
}

impl<'a> Untimed<'a> {
    fn new(asleep: impl FnMut() + 'a) -> Self {
        let (wakes, waker) = WakeCount::new();
        Self {
            wakes,
            waker,
            asleep: Box::new(asleep),
            sleeps: 0,
        }
    }
}

impl Wait for Untimed<'_> {
    fn now(&mut self) -> Instant {
        panic!("no wait has a deadline");
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        assert_eq!(until, None);
        self.sleeps += 1;
        (self.asleep)();
        WakeReason::Woken
    }
}

/// Spec: EVW-01, EVW-05
#[test]
fn woken_waiter_takes_the_completion() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    progress(&ia);
    for cookie in 1..=4 {
        send(&ia, peer.ep, cookie);
        let mut wait = Untimed::new(|| {
            assert_eq!(device.armed(number(evd)), Some(false));
            succeed(&device, peer.key);
        });
        let waited = ia.evd_wait_until(evd, 1, None, &mut wait).unwrap();
        assert_eq!((tag(waited.event), waited.more), (cookie, 0));
        assert_eq!(wait.sleeps, 1);
        assert_eq!(
            wait.wakes.take(),
            0,
            "a wait that polls next needs no wake-up"
        );
    }
    assert_eq!(tags(&ia, evd), []);
}

/// Completions without an event end no wait, and the queue is armed again.
///
/// Spec: EVW-01, DTO-04
#[test]
fn completion_without_an_event_ends_no_wait() {
    use crate::flags::CompletionFlags;

    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    for cookie in 1..=2 {
        let flags = CompletionFlags::SUPPRESS;
        ia.post_send(peer.ep, &[], cookie, flags).unwrap();
    }
    send(&ia, peer.ep, 3);
    let mut wait = super::drivers::Sleeper::new(|_| {
        assert_eq!(device.armed(number(evd)), Some(false));
        succeed(&device, peer.key);
    });
    let waited = ia.evd_wait_until(evd, 1, None, &mut wait).unwrap();
    assert_eq!((tag(waited.event), waited.more), (3, 0));
    assert_eq!(wait.asked.len(), 3);
}

/// A sleeper whose wait has ended leaves the notification to the wait after it.
///
/// Spec: EVW-04, EVN-04
#[test]
fn another_wait_on_the_same_dispatcher_is_told_of_its_completion() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, None, Some(evd), &EpAttributes::DEFAULT);
    send(&ia, peer.ep, 1);
    let (wakes, waker) = WakeCount::new();
    let mut second = None;
    let mut first = super::drivers::Sleeper::new(|_| {
        ia.evd_set_unwaitable(evd).unwrap();
        ia.evd_clear_unwaitable(evd).unwrap();
        let mut wait = ia.evd_wait(evd, 1).unwrap();
        assert!(wait.poll(&waker).is_pending());
        second = Some(wait);
        succeed(&device, peer.key);
        assert_eq!(wakes.take(), 0, "no wait has handled the event");
    });
    let error = ia.evd_wait_until(evd, 1, None, &mut first).unwrap_err();
    assert_eq!(
        super::code(error),
        (ErrorKind::InvalidState, Subtype::InvalidStateEvdUnwaitable)
    );
    drop(first);
    assert_eq!(wakes.take(), 1);
    let mut second = second.unwrap();
    assert_eq!(ready(second.poll(&waker)), (1, 0));
}
