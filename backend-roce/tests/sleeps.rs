//! Threads that sleep until their adapter has events.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::end::{End, PATIENCE, connect};
use dat_core::event::{Event, ThreadWait, Wait as _, WakeReason};
use dat_core::flags::{CompletionFlags, DtoStatus};
use dat_core::time::Instant;

/// Held by each test, so that each knows its threads.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how often the threads that serve adapters were woken so far, in no particular order.
fn wakeups_of_adapters() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads");
    let wakeups = tasks.filter_map(|task| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name| {
            let line = status
                .lines()
                .find_map(|line: &str| line.strip_prefix(name));
            line.map(str::trim)
        };
        let switches = field("voluntary_ctxt_switches:")?.parse();
        (field("Name:")? == "roce").then(|| switches.expect("a number"))
    });
    wakeups.collect()
}

/// Waits until a thread sleeps, which is named by its path below `/proc`.
fn until_asleep(thread: &Path) {
    let status = Path::new("/proc").join(thread).join("stat");
    // The state follows the name of the thread.
    while !fs::read_to_string(&status)
        .expect("a thread")
        .contains(") S ")
    {
        thread::yield_now();
    }
}

/// Sleeps until a message has come.
fn receive(end: &End) {
    let until = Instant::from_micros(ThreadWait::clock().as_micros() + PATIENCE.as_micros() as u64);
    let mut wait = end.driver.wait();
    loop {
        let waited = end.ia.evd_wait_until(end.evd, 1, Some(until), &mut wait);
        let Event::Dto(done) = waited.expect("an event").event else {
            panic!("no completion")
        };
        assert_eq!(done.status, DtoStatus::Success);
        if done.operation == dat_core::event::DtoOperation::Receive {
            return;
        }
    }
}

/// The sleeping thread takes its message itself; the thread of the adapter sleeps on.
#[test]
fn a_message_for_a_sleeping_thread_wakes_no_other_one() {
    const MESSAGES: u64 = 100;
    let _alone = alone();
    // Only the receiver's adapter has a thread.
    let (left, right) = (End::open(0, true), End::open(1, false));
    connect(&left, &right);
    let none = CompletionFlags::empty();
    thread::scope(|scope| {
        let (ready, is_ready) = channel();
        let right = &right;
        let receiver = scope.spawn(move || {
            let before = wakeups_of_adapters();
            for _ in 0..MESSAGES {
                let posted = right.ia.post_recv(right.ep, &right.local(1, 8), 1, none);
                posted.expect("a receive");
                let own = fs::read_link("/proc/thread-self").expect("this thread");
                ready.send(own).expect("the sender");
                receive(right);
            }
            (before, wakeups_of_adapters())
        });
        for _ in 0..MESSAGES {
            until_asleep(&is_ready.recv().expect("the receiver"));
            let posted = left.ia.post_send(left.ep, &left.local(0, 8), 2, none);
            posted.expect("a post");
            while left.look().is_none() {}
        }
        let (before, after) = receiver.join().expect("the receiver");
        let ([before], [after]) = (&before[..], &after[..]) else {
            panic!("one thread of an adapter: {before:?}, {after:?}");
        };
        // A few messages may come while their receiver sleeps for a lock.
        let wakeups = after - before;
        assert!(
            wakeups < MESSAGES / 2,
            "{wakeups} wake-ups for {MESSAGES} messages"
        );
    });
}

/// A target serves its peer while its own threads sleep, compute, and end their sleeps.
#[test]
fn a_target_answers_whether_its_threads_sleep_or_not() {
    let _alone = alone();
    let (left, right) = (End::open(2, false), End::open(3, false));
    connect(&left, &right);
    let (stop, stops) = channel::<()>();
    thread::scope(|scope| {
        let driver = &right.driver;
        scope.spawn(move || {
            let mut wait = driver.wait();
            let mut pause = 0;
            while stops.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) {
                pause = (pause + 300) % 3_000;
                let until = Instant::from_micros(wait.now().as_micros() + pause);
                wait.wait(Some(until));
            }
        });
        for value in 0..200_u64 {
            left.fill(value as u8);
            let (local, remote) = (left.local(0, 64), right.remote(0, 64));
            let none = CompletionFlags::empty();
            let posted = left
                .ia
                .post_rdma_write(left.ep, &local, value, &remote, none);
            posted.expect("a post");
            let mut wait = left.driver.wait();
            let now = ThreadWait::clock().as_micros();
            let until = Instant::from_micros(now + PATIENCE.as_micros() as u64);
            let waited = left.ia.evd_wait_until(left.evd, 1, Some(until), &mut wait);
            let event = waited.expect("an event").event;
            let done = matches!(event, Event::Dto(done) if done.status == DtoStatus::Success);
            assert!(done, "{event:?}");
            assert!(right.holds(1, 64, value as u8));
        }
        drop(stop);
    });
    assert_eq!(left.driver.counts().requester.retransmits, 0);
}

/// Each of several sleeps ends by its own waker, also by one that was woken before, and by time.
#[test]
fn a_sleep_ends_by_its_waker_and_by_time() {
    let _alone = alone();
    let end = End::open(4, false);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let (ended, ends) = channel();
        thread::scope(|scope| {
            let wakers = [0, 1, 2].map(|number| {
                let mut wait = end.driver.wait();
                let (waker, ended) = (wait.waker(), ended.clone());
                scope.spawn(move || {
                    assert_eq!(wait.wait(None), WakeReason::Woken);
                    ended.send(number).expect("the test");
                });
                // One of them sleeps on the sockets, and the others on the first.
                thread::sleep(Duration::from_millis(10));
                waker
            });
            for number in order {
                wakers[number].wake_by_ref();
                assert_eq!(ends.recv_timeout(PATIENCE), Ok(number));
            }
        });
    }
    let mut wait = end.driver.wait();
    wait.waker().wake();
    assert_eq!(wait.wait(None), WakeReason::Woken);
    for pause in [0, 1, 400, 5_500] {
        let until = Instant::from_micros(wait.now().as_micros() + pause);
        assert_eq!(wait.wait(Some(until)), WakeReason::TimedOut);
        assert!(wait.now() >= until, "{pause}");
    }
}
