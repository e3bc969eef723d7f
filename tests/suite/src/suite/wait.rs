//! Blocking waits.

use core::task::Waker;

use dat_core::event::{Event, Expired, Wait, WakeReason};
use dat_core::flags::{CompletionFlags, EvdFlags};
use dat_core::time::Instant;
use dat_core::{Error, ErrorKind, Subtype};

use crate::fixture::{Net, PartyOptions, Testbed, granted, refused};

/// Steps the transport at every sleep, or is interrupted by a signal.
struct Sleeper<'b, T> {
    bed: &'b T,
    interrupted: bool,
    sleeps: usize,
}

impl<'b, T> Sleeper<'b, T> {
    fn new(bed: &'b T) -> Self {
        Self {
            bed,
            interrupted: false,
            sleeps: 0,
        }
    }
}

impl<T: Testbed> Wait for Sleeper<'_, T> {
    fn now(&mut self) -> Instant {
        self.bed.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        self.sleeps += 1;
        assert!(self.sleeps < self.bed.max_steps(), "no end of sleeping");
        if self.interrupted {
            return WakeReason::Interrupted;
        }
        if self.bed.step() || (until.is_none() && !self.bed.is_stepped()) {
            return WakeReason::Woken;
        }
        let until = until.expect("asleep for ever with nothing to come");
        self.bed.advance(until);
        WakeReason::TimedOut
    }
}

/// Returns a time some microseconds from now.
fn soon<T: Testbed>(bed: &T, micros: u64) -> Option<Instant> {
    Some(Instant::from_micros(bed.now().as_micros() + micros))
}

/// A blocking wait makes progress on its adapter and returns with the event.
///
/// Spec: EVW-01, EVW-07, EVW-14
pub fn blocking_wait_returns_with_the_event<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for threshold in 1..=4 {
        for cookie in 0..4 {
            left.write(
                &[left.memory.segment(0, 8)],
                cookie,
                &right.memory.remote(0, 8),
                CompletionFlags::empty(),
            );
        }
        let mut sleeper = Sleeper::new(bed);
        let waited = granted(
            left.ia
                .evd_wait_until(left.request, threshold, None, &mut sleeper),
        );
        assert!(waited.more + 1 >= threshold as u32);
        let Event::Dto(first) = waited.event else {
            panic!("{waited:?}");
        };
        assert_eq!(first.cookie, 0);
        for cookie in 1..4 {
            net.success(&left, cookie);
        }
    }
}

/// A wait that times out returns TIMEOUT_EXPIRED and dequeues nothing.
///
/// It counts the queued events. A deadline in the past makes it a poll.
///
/// Spec: EVW-06, EVW-08, GEN-09
pub fn blocking_wait_times_out<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let evd = granted(ia.evd_create(4, None, EvdFlags::SOFTWARE));
    granted(ia.evd_post_se(evd, 1));
    for micros in [0, 1, 5_000] {
        let deadline = soon(bed, micros);
        let mut sleeper = Sleeper::new(bed);
        refused(
            ia.evd_wait_until(evd, 2, deadline, &mut sleeper),
            Error::timeout_expired(),
        );
        assert!(bed.now() >= deadline.expect("a deadline"));
        assert!(micros != 0 || sleeper.sleeps == 0, "a poll slept");
    }
    for queued in 1..4 {
        let deadline = soon(bed, 10);
        let param = ia.evd_wait_counted(evd, 4, deadline, &mut Sleeper::new(bed));
        assert_eq!(granted(param), Err(Expired { queued }));
        granted(ia.evd_post_se(evd, u64::from(queued) + 1));
    }
    for pointer in 2..=4 {
        let now = soon(bed, 0);
        let threshold = 6 - pointer as i32;
        let waited = granted(ia.evd_wait_until(evd, threshold, now, &mut Sleeper::new(bed)));
        assert_eq!(
            waited.event,
            Event::Software {
                pointer: pointer - 1
            }
        );
    }
    granted(ia.evd_dequeue(evd));
    granted(ia.evd_post_se(evd, 1));
    let now = soon(bed, 0);
    let waited = granted(ia.evd_wait_until(evd, 1, now, &mut Sleeper::new(bed)));
    assert_eq!(waited.event, Event::Software { pointer: 1 });
    assert_eq!(waited.more, 0);
}

/// A signal ends waits with INTERRUPTED_CALL; no event is dequeued.
///
/// The dispatcher is free again.
///
/// Spec: EVW-10, CNW-07
pub fn signals_interrupt_waits<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE));
    let interrupted = Error::new(ErrorKind::InterruptedCall, Subtype::NoSubtype);
    let mut sleeper = Sleeper {
        interrupted: true,
        ..Sleeper::new(bed)
    };
    refused(ia.evd_wait_until(evd, 1, None, &mut sleeper), interrupted);
    refused(ia.cno_wait_until(cno, None, &mut sleeper), interrupted);
    granted(ia.evd_post_se(evd, 7));
    assert_eq!(granted(ia.evd_dequeue(evd)), Event::Software { pointer: 7 });
}

/// A blocking wait on a notification object returns the dispatcher that fired.
///
/// If the time runs out it returns QUEUE_EMPTY.
///
/// Spec: CNW-01, CNW-03, CNW-04, CNW-07
pub fn blocking_notification_wait<T: Testbed>(bed: &T) {
    let (net, ia) = Net::with_adapter(bed);
    let cno = granted(ia.cno_create(None));
    let left = crate::fixture::Party::<T>::notifying(&ia, cno, &PartyOptions::default());
    let right = crate::fixture::Party::<T>::new(&net.adapter(), &PartyOptions::default());
    net.connect(&left, &right);
    for micros in [0, 1_000] {
        let deadline = soon(bed, micros);
        refused(
            ia.cno_wait_until(cno, deadline, &mut Sleeper::new(bed)),
            Error::queue_empty(),
        );
    }
    left.write(
        &[left.memory.segment(0, 8)],
        1,
        &right.memory.remote(0, 8),
        CompletionFlags::empty(),
    );
    let fired = granted(ia.cno_wait_until(cno, None, &mut Sleeper::new(bed)));
    assert_eq!(fired, Some(left.request));
    net.success(&left, 1);
}
