//! Threads that sleep until their adapter has events.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::end::{DEPTH, End, PATIENCE, QUALIFIER, SLOT, connect};
use common::process::until_asleep;
use dat_core::error::ErrorKind;
use dat_core::event::{Event, ThreadWait, Wait as _, WakeReason};
use dat_core::flags::{CompletionFlags, DtoStatus, EvdFlags, PspFlags};
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

/// Returns how often a thread was woken so far, which is named by its path below `/proc`.
fn wakeups(thread: &Path) -> u64 {
    let status = Path::new("/proc").join(thread).join("status");
    let status = fs::read_to_string(status).expect("a thread");
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let switches = switches.map(str::trim).expect("the switches");
    switches.parse().expect("a number")
}

/// Waits until a thread sleeps for longer than a lock takes; returns how often it was woken.
fn until_at_rest(thread: &Path) -> u64 {
    loop {
        until_asleep(thread);
        let before = wakeups(thread);
        thread::sleep(Duration::from_millis(2));
        until_asleep(thread);
        if wakeups(thread) == before {
            return before;
        }
    }
}

/// Returns the number of descriptors of this process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
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

/// Closing an adapter ends the sleep of a thread on its sockets, which then belong to the adapter's
/// thread: it takes the answers of the peers. The sockets are closed with the last user.
///
/// Spec: ROCE-178
#[test]
fn closing_ends_a_sleep_on_the_sockets() {
    let _alone = alone();
    let before = descriptors();
    // The peer answers only when the test polls it.
    let (end, peer) = (End::open(5, false), End::open(6, true));
    connect(&end, &peer);
    let other = QUALIFIER + 1;
    let point = end.ia.psp_create(other, end.evd, PspFlags::Consumer);
    point.expect("a service point");
    let own = end.address.socket_address().expect("an IP address").ip();
    let claimed = || UdpSocket::bind((own, other as u16));
    assert!(claimed().is_err());
    let End { ia, driver, .. } = end;
    let (told, tells) = channel();
    let (closed, is_closed) = channel();
    let mut wait = driver.wait();
    let waker = wait.waker();
    thread::scope(|scope| {
        let (ready, is_ready) = channel();
        scope.spawn(move || {
            // Returns at once: the connection was made before.
            assert_eq!(wait.wait(None), WakeReason::Woken);
            let own = fs::read_link("/proc/thread-self").expect("this thread");
            ready.send(own).expect("the test");
            for reason in ["closing", "woken"] {
                assert_eq!(wait.wait(None), WakeReason::Woken);
                told.send(reason).expect("the test");
            }
        });
        let sleeper = is_ready.recv().expect("the sleeper");
        until_at_rest(&sleeper);
        scope.spawn(move || {
            drop(ia);
            closed.send(()).expect("the test");
        });
        let closing = tells.recv_timeout(PATIENCE);
        // The sleeper waits again. The answer of the peer is not for it.
        let before = until_at_rest(&sleeper);
        while peer.look().is_none() {}
        let closed = is_closed.recv_timeout(PATIENCE);
        let after = until_at_rest(&sleeper);
        waker.wake_by_ref();
        let woken = tells.recv_timeout(PATIENCE);
        // Ends the sleeper that the closing did not wake.
        waker.wake();
        assert_eq!(
            (closing, closed, woken),
            (Ok("closing"), Ok(()), Ok("woken"))
        );
        assert_eq!(after, before, "wake-ups of the sleeper");
        claimed().expect("the port is free again");
    });
    drop((driver, peer));
    assert_eq!(descriptors(), before);
}

/// A wait ends at its deadline while others use the adapter.
#[test]
fn a_wait_ends_by_time_beside_bulk_data() {
    let _alone = alone();
    let (left, right) = (End::open(7, false), End::open(8, false));
    connect(&left, &right);
    let silent = right.ia.evd_create(8, None, EvdFlags::DTO);
    let silent = silent.expect("a queue");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (left, right, stop, done) = (&left, &right, &stop, &done);
        scope.spawn(move || {
            let mut posted = 0;
            while !stop.load(Ordering::Relaxed) {
                while posted - done.load(Ordering::Relaxed) < DEPTH as u64 {
                    let (local, remote) = (left.local(0, SLOT), right.remote(0, SLOT));
                    let none = CompletionFlags::empty();
                    let post = left
                        .ia
                        .post_rdma_write(left.ep, &local, posted, &remote, none);
                    post.expect("a post");
                    posted += 1;
                }
                while left.look().is_some() {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let moves_on = || {
            let before = done.load(Ordering::Relaxed);
            let end = std::time::Instant::now() + PATIENCE;
            while done.load(Ordering::Relaxed) < before + 10 {
                if std::time::Instant::now() > end {
                    return false;
                }
                thread::yield_now();
            }
            true
        };
        let (ended, ends) = channel();
        let mut results = Vec::new();
        for pause in [400, 1_000, 5_500, 30_000] {
            let mut wait = right.driver.wait();
            let (waker, ended) = (wait.waker(), ended.clone());
            let moved = moves_on();
            scope.spawn(move || {
                let until = Instant::from_micros(wait.now().as_micros() + pause);
                let waited = right.ia.evd_wait_until(silent, 1, Some(until), &mut wait);
                let why = waited.err().map(|error| error.kind());
                let _ = ended.send((why, wait.now() >= until));
            });
            let end = ends.recv_timeout(PATIENCE);
            // The data moves on after the end.
            results.push((end, moved && moves_on()));
            // Ends the wait that did not end by time.
            waker.wake();
        }
        stop.store(true, Ordering::Relaxed);
        for result in results {
            let timeout = Some(ErrorKind::TimeoutExpired);
            assert_eq!(result, (Ok((timeout, true)), true));
        }
    });
}
