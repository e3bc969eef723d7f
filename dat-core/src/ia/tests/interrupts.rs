//! Interrupt handlers at each release of a lock in each call.
//!
//! The lock is one that interrupts: after the release that ends the outermost section it runs a
//! handler. Each call is made once for each of its releases.

mod bed;
mod cases;
mod in_hand;
mod parked;
mod walks;

use core::cell::RefCell;
use core::task::Waker;
use std::boxed::Box;
use std::format;
use std::rc::Rc;
use std::vec::Vec;

use crate::error::{Cause, Error, ErrorKind, Result, Subtype};
use crate::event::Event;
use crate::flags::{CloseFlags, DtoStatus, EndpointState, MemoryPrivileges};
use crate::id::EpId;
use crate::testing::WakeCount;
use crate::time::Instant;

use bed::{Bed, CHOSEN, COOKIE, HANDLER, NOTHING, RELEASES};
use cases::{CASES, Case, Changes};

/// The object that a call of the handler uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    Endpoint,
    /// An endpoint that no call of a case touches.
    Other,
    SharedQueue,
    Window,
    Software,
}

/// Counts of the calls of the handler, by their results.
#[derive(Default)]
struct Done {
    /// Accepted sends and receives of `ep`, and of `other`.
    posted: [u32; 2],
    /// Completions of `ep`, and of `other`.
    completed: [u32; 2],
    /// Accepted binds, and their completions.
    bound: [u32; 2],
    /// Set if a dequeue found nothing although a completion was there.
    missed: bool,
    refused: Vec<(Used, Error)>,
}

impl Done {
    /// Posts a send and a receive to each endpoint.
    fn post(&mut self, bed: &Bed) {
        let segments = [bed.segment];
        for (index, ep) in [bed.ep, bed.other].into_iter().enumerate() {
            let used = [Used::Endpoint, Used::Other][index];
            let sent = bed.ia.post_send(ep, &segments, COOKIE, NOTHING);
            let received = bed.ia.post_recv(ep, &segments, COOKIE, NOTHING);
            for made in [sent, received] {
                self.posted[index] += u32::from(self.note(used, made));
            }
        }
    }

    /// Makes the other calls that a handler may make.
    fn call(&mut self, bed: &Bed) {
        let posted = bed.ia.srq_post_recv(bed.srq, &[bed.segment], COOKIE);
        self.note(Used::SharedQueue, posted);
        let opens = MemoryPrivileges::REMOTE_WRITE;
        let bound = bed
            .ia
            .rmr_bind(bed.own, &bed.segment, opens, bed.other, COOKIE, NOTHING);
        self.bound[0] += u32::from(self.note(Used::Window, bound.map(drop)));
        let posted = bed.ia.evd_post_se(bed.software, 2);
        self.note(Used::Software, posted);
    }

    /// Notes a refusal; returns true if the call was made.
    fn note(&mut self, used: Used, made: Result<()>) -> bool {
        match made {
            Ok(()) => true,
            Err(error) => {
                self.refused.push((used, error));
                false
            }
        }
    }

    fn dequeue(&mut self, bed: &Bed) {
        while let Ok(event) = bed.ia.evd_dequeue(bed.data) {
            self.count(bed, &event);
        }
    }

    fn count(&mut self, bed: &Bed, event: &Event) {
        match event {
            Event::Dto(completion) if completion.cookie == COOKIE => {
                self.completed[usize::from(completion.ep == bed.other)] += 1;
            }
            Event::RmrBind(completion) if completion.cookie == COOKIE => self.bound[1] += 1,
            _ => {}
        }
    }
}

/// Returns true if GEN-16 lets a call with these `changes` refuse a handler's call so.
fn is_allowed(changes: Changes, used: Used, error: Error) -> bool {
    let touched = match changes {
        Changes::Nothing => false,
        Changes::Endpoint => used == Used::Endpoint,
        Changes::SharedQueue => used == Used::SharedQueue,
        Changes::Software => used == Used::Software,
        Changes::Region => {
            return error.kind() == ErrorKind::PrivilegesViolation
                && error.cause() == Cause::StaleContext;
        }
        Changes::Everything => true,
    };
    match (error.kind(), error.cause()) {
        (ErrorKind::InsufficientResources, Cause::Busy) => touched,
        // The call has ended, freed or emptied it.
        (ErrorKind::InvalidState, _) | (ErrorKind::InvalidHandle, Cause::Stale) => touched,
        _ => false,
    }
}

fn progress(bed: &Bed) {
    while bed.ia.progress(Instant::ZERO) != 0 {}
}

/// Makes a call with `handler` at the release `chosen`; returns the number of releases.
fn run(case: &Case, bed: &Bed, chosen: u32, handler: impl FnMut() + 'static) -> (u32, Result<()>) {
    (case.raise)(bed);
    bed.ia.take_interrupts();
    HANDLER.set(Some(Box::new(handler)));
    RELEASES.set(0);
    CHOSEN.set(chosen);
    let outcome = (case.call)(bed);
    CHOSEN.set(0);
    let has_run = HANDLER.take().is_none();
    assert_eq!(has_run, chosen != 0, "{}: {outcome:?}", case.name);
    (RELEASES.get(), outcome)
}

/// Breaks both endpoints and dequeues all that is left; every accepted post completes once.
fn settle(bed: &Bed, done: &mut Done, context: &str) {
    for ep in [bed.ep, bed.other] {
        let _over = bed.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        if let Some(pair) = bed.pair(ep) {
            bed.device.break_pair(pair);
        }
        for _ in 0..4 {
            bed.ia.progress(Instant::ZERO);
            done.dequeue(bed);
        }
    }
    assert_eq!(done.completed[1], done.posted[1], "{context}");
    assert_eq!(done.bound[0], done.bound[1], "{context}");
    if state(bed, bed.ep) == Ok(EndpointState::Disconnected) {
        assert_eq!(done.completed[0], done.posted[0], "{context}");
    } else {
        assert!(done.completed[0] <= done.posted[0], "{context}");
    }
}

fn state(bed: &Bed, ep: EpId) -> Result<EndpointState> {
    bed.ia.ep_get_status(ep).map(|status| status.state)
}

/// Makes a call, with a handler at the release `chosen`; returns the number of releases.
///
/// Unless it `controls`, the handler makes no control call, whose refusal is told as well.
fn interrupt(case: &'static Case, chosen: u32, controls: bool) -> u32 {
    let bed = Rc::new(Bed::new());
    let done = Rc::new(RefCell::new(Done::default()));
    done.borrow_mut().post(&bed);
    (case.prepare)(&bed);
    // A completion that was notified, and that only the handler's dequeue, or a later one, can
    // find.
    let other = bed.pair(bed.other).unwrap();
    assert!(bed.device.complete_request(other, DtoStatus::Success));
    progress(&bed);
    let mut notified = bed.ia.cno_wait(bed.cno).unwrap();
    assert!(notified.poll(Waker::noop()).is_ready());
    let (wakes, waker) = WakeCount::new();
    let mut notified = bed.ia.cno_wait(bed.cno).unwrap();
    assert!(notified.poll(&waker).is_pending());
    let handler = {
        let (bed, done, name) = (bed.clone(), done.clone(), case.name);
        move || {
            let mut done = done.borrow_mut();
            done.post(&bed);
            let before = done.completed[1];
            done.dequeue(&bed);
            done.missed = done.completed[1] == before;
            if controls {
                done.call(&bed);
            }
            // A completion after the dequeue, which has to be notified.
            bed.device
                .complete_receive(other, DtoStatus::Success, 1, false);
            if !controls {
                return;
            }
            // A call of the control path is made or refused.
            match bed.ia.pz_create() {
                Ok(pz) => bed.ia.pz_free(pz).unwrap(),
                Err(error) => {
                    let is_closed = error.kind() == ErrorKind::InvalidHandle;
                    assert!(
                        is_closed || error.cause() == Cause::Busy,
                        "{name}: {error:?}"
                    );
                }
            }
        }
    };
    let (releases, outcome) = run(case, &bed, chosen, handler);
    if chosen == 0 {
        return releases;
    }
    let context = format!("{} interrupted at {chosen}: {outcome:?}", case.name);
    let mut done = done.borrow_mut();
    for (used, error) in &done.refused {
        let is_allowed = is_allowed(case.changes, *used, *error);
        assert!(is_allowed, "{used:?}: {error:?}; {context}");
    }
    if case.changes == Changes::Everything {
        return releases;
    }
    // Whoever was refused or found nothing is told, and then finds it.
    let is_busy = |(_, error): &(Used, Error)| error.cause() == Cause::Busy;
    if done.missed || done.refused.iter().any(is_busy) {
        assert_ne!(bed.ia.take_interrupts(), 0, "{context}");
        let again = bed.ia.post_recv(bed.ep, &[], COOKIE + 1, NOTHING);
        assert_ne!(again.map_err(|error| error.cause()), Err(Cause::Busy));
    }
    progress(&bed);
    // The last completion is left, and its notification has arrived.
    if !case.is_silent {
        assert_ne!(wakes.take(), 0, "{context}");
        assert!(notified.poll(Waker::noop()).is_ready(), "{context}");
    }
    drop(notified);
    done.dequeue(&bed);
    settle(&bed, &mut done, &context);
    releases
}

/// A handler may post, bind, dequeue and notify at each release of a lock in each call.
///
/// Its calls are made, unless the interrupted one changes what they use. Accepted posts complete
/// once, no notification is lost, and whoever was refused is told when to look again. The device
/// gets no command while interrupts are masked.
///
/// Spec: GEN-16, DTO-07, EVG-01
#[test]
fn a_handler_interrupts_each_call_at_each_release() {
    let mut pairs = 0;
    for case in CASES {
        let releases = interrupt(case, 0, false);
        assert_ne!(releases, 0, "{}", case.name);
        for chosen in 1..=releases {
            interrupt(case, chosen, false);
            interrupt(case, chosen, true);
            pairs += 1;
        }
    }
    std::println!("{} calls, {pairs} interruptions", CASES.len());
    assert!(pairs > 400, "{pairs}");
}

/// Makes a call while the dispatcher of transfers has a waiter.
///
/// The adapter stays open, of which there can be many with `std` only.
#[cfg(feature = "std")]
fn interrupt_waiter(case: &'static Case, chosen: u32) -> u32 {
    let bed: &'static Bed = Box::leak(Box::new(Bed::new()));
    let mut done = Done::default();
    done.post(bed);
    (case.prepare)(bed);
    progress(bed);
    done.dequeue(bed);
    let other = bed.pair(bed.other).unwrap();
    type Wait = crate::event::EvdWait<'static, 'static, crate::testing::TestBackend, bed::Lock>;
    let wait: Rc<RefCell<Wait>> = Rc::new(RefCell::new(bed.ia.evd_wait(bed.data, 1).unwrap()));
    let (wakes, waker) = WakeCount::new();
    assert!(wait.borrow_mut().poll(&waker).is_pending());
    let found = Rc::new(RefCell::new(None));
    let handler = {
        let (wait, found, waker) = (wait.clone(), found.clone(), waker.clone());
        move || {
            *found.borrow_mut() = match wait.borrow_mut().poll(&waker) {
                core::task::Poll::Ready(outcome) => Some(outcome),
                core::task::Poll::Pending => None,
            };
            bed.device.complete_request(other, DtoStatus::Success);
        }
    };
    let (releases, outcome) = run(case, bed, chosen, handler);
    let context = format!("{} interrupted at {chosen}: {outcome:?}", case.name);
    if chosen == 0 || case.changes == Changes::Everything {
        return releases;
    }
    progress(bed);
    let found = found.borrow_mut().take();
    let found = found.unwrap_or_else(|| {
        assert_ne!(wakes.take(), 0, "{context}");
        match wait.borrow_mut().poll(&waker) {
            core::task::Poll::Ready(outcome) => outcome,
            core::task::Poll::Pending => panic!("{context}"),
        }
    });
    assert!(found.is_ok(), "{found:?}; {context}");
    releases
}

/// A waiter is woken by a completion that arrives at any release of a lock in any call.
///
/// Spec: GEN-16, EVW-01
#[cfg(feature = "std")]
#[test]
fn a_waiter_is_woken_whatever_call_is_interrupted() {
    for case in CASES {
        for chosen in 1..=interrupt_waiter(case, 0) {
            interrupt_waiter(case, chosen);
        }
    }
}

/// A failed completion that a handler dequeues breaks the connection in the next `progress`.
///
/// Spec: GEN-16, DTO-12
#[test]
fn a_failure_that_a_handler_finds_is_left_to_progress() {
    let bed = Bed::new();
    bed.ia
        .post_send(bed.ep, &[bed.segment], COOKIE, NOTHING)
        .unwrap();
    let pair = bed.pair(bed.ep).unwrap();
    assert!(bed.device.complete_request(pair, DtoStatus::BadResponse));
    bed.device.take_calls();
    let Ok(Event::Dto(failed)) = bed.ia.evd_dequeue(bed.data) else {
        panic!("no completion");
    };
    assert_eq!(failed.status, DtoStatus::BadResponse);
    assert_eq!(bed.device.take_calls(), []);
    assert_eq!(bed.ia.take_interrupts(), 1);
    assert!(!bed.ia.is_quiet());
    bed.ia.progress(Instant::ZERO);
    assert_eq!(state(&bed, bed.ep), Ok(EndpointState::Disconnected));
}

/// A control call in a handler is refused while the interrupted context makes one.
///
/// Its end tells who was refused.
///
/// Spec: GEN-16
#[test]
fn a_control_call_inside_another_is_refused() {
    let bed = Bed::new();
    type Call = fn(&Bed);
    let calls: [Call; 4] = [
        |bed| {
            let refused = bed.ia.pz_create().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InsufficientResources);
            assert_eq!(refused.subtype(), Subtype::ResourceDevice);
            assert_eq!(refused.cause(), Cause::Busy);
        },
        |bed| assert!(!bed.ia.is_quiet()),
        |bed| assert_eq!(bed.ia.next_deadline(), Some(Instant::ZERO)),
        |bed| {
            // The second call does not tell of the first one: the handler might come back for ever.
            assert_eq!(bed.ia.progress(Instant::ZERO), 0);
            assert_eq!(bed.ia.progress(Instant::ZERO), 0);
        },
    ];
    for call in calls {
        let made = bed.ia.controlled(|_| {
            call(&bed);
            assert_eq!(bed.ia.take_interrupts(), 0);
            Ok(())
        });
        made.unwrap();
        assert_eq!(bed.ia.take_interrupts(), 1);
        assert!(bed.ia.is_quiet());
    }
}
