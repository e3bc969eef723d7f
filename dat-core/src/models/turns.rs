//! Work that one thread does for all that ask for it.

use loom::thread;
use std::sync::Arc;

use super::prove;
use crate::sync::Turns;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::loom_sync::{Accesses, set_under_way};

/// Work that two threads do in turns.
struct Work {
    turns: Turns,
    /// Work of each thread, done without an order of its own.
    asked: [AtomicU32; 2],
    /// Accesses of those that look, which exclude each other.
    looks: Accesses,
    /// Value that the last look saw.
    seen: AtomicU32,
}

impl Work {
    fn new() -> Arc<Self> {
        let work = Self {
            turns: Turns::new(),
            asked: [AtomicU32::new(0), AtomicU32::new(0)],
            looks: Accesses::new(),
            seen: AtomicU32::new(0),
        };
        work.looks.write();
        drop(work.turns.take());
        for word in &work.asked {
            word.store(0, Ordering::Relaxed);
        }
        work.seen.store(0, Ordering::Relaxed);
        set_under_way(true);
        Arc::new(work)
    }

    fn ask(&self, thread: usize) {
        self.asked[thread].store(1, Ordering::Relaxed);
    }

    fn look(&self) {
        self.looks.write();
        let sum = |asked: &AtomicU32| asked.load(Ordering::Relaxed);
        let all = self.asked.iter().map(sum).sum();
        self.seen.store(all, Ordering::Relaxed);
    }

    /// Looks until nobody asks for more.
    fn work(&self) {
        let mut turn = self.turns.take();
        while let Some(own) = turn {
            self.look();
            turn = own.end();
        }
    }
}

/// The last look sees the work of both threads, and one thread looks at a time.
#[test]
fn the_last_look_sees_the_work_of_all() {
    prove(None, || {
        let work = Work::new();
        let other = work.clone();
        let thread = thread::spawn(move || {
            other.ask(1);
            other.work();
        });
        work.ask(0);
        work.work();
        thread.join().unwrap();
        assert_eq!(work.seen.load(Ordering::Relaxed), 2);
    });
}

/// A thread that leaves after one look knows if another one asked for more.
#[test]
fn who_leaves_knows_that_another_look_is_asked_for() {
    prove(None, || {
        let work = Work::new();
        let other = work.clone();
        let thread = thread::spawn(move || {
            other.ask(1);
            other.work();
        });
        work.ask(0);
        if let Some(turn) = work.turns.take() {
            work.look();
            if turn.leave() {
                work.work();
            }
        }
        thread.join().unwrap();
        assert_eq!(work.seen.load(Ordering::Relaxed), 2);
    });
}

/// A turn that is dropped excludes the next one, and the next one is taken.
#[test]
fn a_dropped_turn_is_taken_again() {
    prove(None, || {
        let work = Work::new();
        let other = work.clone();
        let thread = thread::spawn(move || {
            if let Some(_turn) = other.turns.take() {
                other.look();
            }
        });
        if let Some(_turn) = work.turns.take() {
            work.look();
        }
        thread.join().unwrap();
        assert!(work.turns.take().is_some());
    });
}
