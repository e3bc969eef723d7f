//! The lease of local queues in all interleavings of the program and the thread of its adapter, on
//! the model checker.
//!
//! The code is the product's own, over the atomics of the checker. The model must fail once the
//! code is changed, or it would prove nothing.

#![cfg(all(feature = "udp", not(miri)))]

#[path = "../src/shared/lease.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "a part of the crate"
)]
mod lease;

/// Atomics of the checker, with a fence that a change leaves out.
mod atomic {
    use std::cell::Cell;

    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// A change of the code that the model must notice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Change {
        /// The program has no fence.
        Program,
        /// The thread of the adapter has none.
        Thread,
    }

    std::thread_local! {
        pub(super) static CHANGE: Cell<Option<Change>> = const { Cell::new(None) };
    }

    loom::thread_local! {
        /// The role of the thread.
        pub(super) static ROLE: Cell<Option<Change>> = Cell::new(None);
    }

    pub(super) fn fence() {
        let role = ROLE.with(Cell::get);
        if role.is_none() || role != CHANGE.get() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use loom::sync::{Mutex, Notify};
use loom::thread;

use atomic::{AtomicBool, CHANGE, Change, Ordering, ROLE};
use lease::{Lease, Watch};

/// A queue of one packet, its doorbell, and the event that a sleeping program waits for.
struct Bench {
    lease: Lease,
    is_written: AtomicBool,
    is_taken: Mutex<bool>,
    flag: AtomicBool,
    bell: Notify,
    event: Notify,
}

impl Bench {
    fn new() -> Self {
        Self {
            lease: Lease::default(),
            is_written: AtomicBool::new(false),
            is_taken: Mutex::new(false),
            flag: AtomicBool::new(false),
            bell: Notify::new(),
            event: Notify::new(),
        }
    }

    /// Takes the packet; returns true if it is taken.
    fn take(&self) -> bool {
        let mut is_taken = self.is_taken.lock().unwrap();
        *is_taken |= self.is_written.load(Ordering::Acquire);
        *is_taken
    }

    /// Asks for a doorbell; returns true if the packet has come.
    fn arm(&self) -> bool {
        self.flag.swap(true, Ordering::AcqRel);
        loom::sync::atomic::fence(Ordering::SeqCst);
        self.is_written.load(Ordering::Acquire)
    }

    fn write(&self) {
        self.is_written.store(true, Ordering::Release);
        loom::sync::atomic::fence(Ordering::SeqCst);
        if self.flag.swap(false, Ordering::AcqRel) {
            self.bell.notify();
        }
    }

    /// The thread of the adapter, which never looks without a doorbell.
    fn serve(&self) {
        ROLE.with(|role| role.set(Some(Change::Thread)));
        let mut watch = Watch::default();
        loop {
            self.lease.begin(&mut watch, true);
            if self.take() {
                return self.event.notify();
            }
            if self.lease.decide(&mut watch, false) || !self.arm() {
                self.bell.wait();
            }
        }
    }

    /// The program, which polls once and then sleeps.
    fn sleep(&self) {
        ROLE.with(|role| role.set(Some(Change::Program)));
        self.lease.note_look();
        if self.lease.waits() && self.arm() && self.take() {
            // The thread has nothing left to do.
            return self.bell.notify();
        }
        self.event.wait();
    }
}

fn run() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        // Threads of the checker are on one thread of the system.
        let bench = Rc::new(Bench::new());
        let (thread, peer) = (Rc::clone(&bench), Rc::clone(&bench));
        let thread = thread::spawn(move || thread.serve());
        let peer = thread::spawn(move || peer.write());
        bench.sleep();
        thread.join().unwrap();
        peer.join().unwrap();
    });
}

/// A program that begins to sleep beside a lease is woken by a doorbell.
///
/// Spec: ROCE-235
#[test]
fn nobody_sleeps_beside_a_lease() {
    CHANGE.set(None);
    run();
    for change in [Change::Program, Change::Thread] {
        CHANGE.set(Some(change));
        let outcome = catch_unwind(AssertUnwindSafe(run));
        assert!(outcome.is_err(), "nothing notices {change:?}");
    }
    CHANGE.set(None);
}
