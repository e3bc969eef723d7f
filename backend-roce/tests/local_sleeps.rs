//! Programs that poll local queues, and programs that sleep beside them, whose adapters never look
//! at the queues without a doorbell.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use backend_roce::PathChoice;
use common::end::{End, PATIENCE, SLOT, connect, connect_at, is_success, poll_both};
use common::process::until_asleep;
use dat_core::backend::HostDriver as _;
use dat_core::event::{DtoOperation, Event, ThreadWait, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(100_000);

/// Writes in a row without a doorbell that show that the peer asks for none.
const QUIET: u32 = 200;

/// Opens an adapter with a thread that looks at queues of a polling program at last after `NEVER`.
fn patient_end(number: u8) -> End {
    End::open_by(number, "", |options| {
        options.path = PathChoice::Local;
        options.look_again = NEVER;
    })
}

/// Opens an adapter without a thread.
fn polled_end(number: u8) -> End {
    End::open_on(number, true, "", PathChoice::Local)
}

/// Sends messages to a program that polls until they ring no doorbells any more.
fn until_quiet(near: &End, far: &End) {
    let none = CompletionFlags::empty();
    let (mut quiet, mut rung) = (0, 0);
    let end = Instant::now() + PATIENCE;
    while quiet < QUIET {
        assert!(Instant::now() < end, "{rung} doorbells");
        let received = far.ia.post_recv(far.ep, &far.local(1, SLOT), 1, none);
        received.expect("a receive");
        let sent = near.ia.post_send(near.ep, &near.local(0, 8), 2, none);
        sent.expect("a post");
        poll_both([near, far], 2, |_, event| is_success(&event));
        let before = std::mem::replace(&mut rung, near.driver.counts().local.doorbells);
        quiet = if rung == before { quiet + 1 } else { 0 };
    }
}

/// A program that polls gets no doorbells, also on the processor of its adapter's thread, which
/// takes each message before it as long as there are doorbells.
///
/// Spec: ROCE-235
#[test]
fn a_program_that_polls_asks_for_no_doorbell() {
    let (near, far) = (polled_end(150), patient_end(151));
    connect(&near, &far);
    until_quiet(&near, &far);
}

/// A thread that waits for messages in a way of its own.
struct Sleeper<'e> {
    end: &'e End,
    asleep: Receiver<PathBuf>,
    woken: Receiver<()>,
    goes_on: Sender<()>,
}

impl<'e> Sleeper<'e> {
    /// Starts a thread that waits for a message each time that it is told to.
    fn start<W: Wait>(
        scope: &'e thread::Scope<'e, '_>,
        end: &'e End,
        wait: impl FnOnce(&End) -> W + Send + 'e,
    ) -> Self {
        let (goes_on, go) = channel();
        let (sleeps, asleep) = channel();
        let (wakes, woken) = channel();
        scope.spawn(move || {
            let mut wait = wait(end);
            while go.recv().is_ok() {
                let own = fs::read_link("/proc/thread-self").expect("this thread");
                sleeps.send(own).expect("the test");
                let waited = end.ia.evd_wait_until(end.evd, 1, None, &mut wait);
                let event = waited.expect("an event").event;
                let received = matches!(event, Event::Dto(done)
                    if done.status == DtoStatus::Success
                        && done.operation == DtoOperation::Receive);
                assert!(received, "{event:?}");
                wakes.send(()).expect("the test");
            }
        });
        Self {
            end,
            asleep,
            woken,
            goes_on,
        }
    }

    fn sleep(&self) {
        let received = self.end.ia.post_recv(
            self.end.ep,
            &self.end.local(1, SLOT),
            1,
            CompletionFlags::empty(),
        );
        received.expect("a receive");
        self.goes_on.send(()).expect("the sleeper");
        until_asleep(&self.asleep.recv().expect("the sleeper"));
    }

    /// Wakes the thread by a message; returns false if that does not come.
    fn is_woken_by(&self, near: &End) -> bool {
        let none = CompletionFlags::empty();
        let sent = near.ia.post_send(near.ep, &near.local(0, 8), 2, none);
        sent.expect("a post");
        let end = Instant::now() + PATIENCE;
        loop {
            // The peer takes the acknowledgement.
            near.look();
            if self.woken.try_recv().is_ok() {
                return true;
            }
            if Instant::now() > end {
                // Ends the process with the test: the sleeper would sleep on.
                eprintln!("a message woke nobody");
                std::process::exit(101);
            }
        }
    }
}

/// Threads that sleep on the port, beside another one that does, and in a way of their own, are all
/// woken by a doorbell after the program has polled.
///
/// Spec: ROCE-235
#[test]
fn who_sleeps_after_polling_is_woken_by_a_doorbell() {
    let (near, far) = (polled_end(152), patient_end(153));
    connect(&near, &far);
    let (near_2, far_2) = (End::beside(&near), End::beside(&far));
    connect_at(&near_2, &far_2, 20_191);
    let own = patient_end(154);
    let near_3 = End::beside(&near);
    connect_at(&near_3, &own, 20_192);
    thread::scope(|scope| {
        let first = Sleeper::start(scope, &far, |end| end.driver.wait());
        let second = Sleeper::start(scope, &far_2, |end| end.driver.wait());
        let third = Sleeper::start(scope, &own, |end| {
            let wait = ThreadWait::until_woken();
            assert!(end.driver.wake_on_events(wait.waker()));
            wait
        });
        for _ in 0..20 {
            until_quiet(&near, &far);
            first.sleep();
            assert!(first.is_woken_by(&near));
            until_quiet(&near, &far);
            first.sleep();
            // The port is taken; then the thread that slept there leaves.
            second.sleep();
            assert!(first.is_woken_by(&near) && second.is_woken_by(&near_2));
            until_quiet(&near_3, &own);
            third.sleep();
            assert!(third.is_woken_by(&near_3));
        }
    });
}
