//! Threads that run one at a time, in turns that the input selects.
//!
//! A turn has a thread and a number of accesses.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, Scope, Thread};

use dat_core::sync::{Access, on_access};

/// The accesses of a turn after the end of the input.
const TURN: u32 = 64;
/// The most turns of a run before it counts as hung.
///
/// A run has some thousand accesses.
const TURNS: u64 = 20_000;
/// The most consecutive turns in which threads only waited for a lock.
const IN_VAIN: u32 = 1000;
/// The number of no thread.
const NOBODY: usize = usize::MAX;
/// The accesses left of a thread outside the run.
const UNCOUNTED: u32 = u32::MAX;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(UNCOUNTED) };
    static THREAD: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// The thread whose turn it is, and the plan of the next turns.
pub(super) struct Turns {
    running: AtomicUsize,
    threads: Mutex<Vec<Option<Thread>>>,
    plan: Mutex<Plan>,
}

struct Plan {
    bytes: Vec<u8>,
    next: usize,
    /// The threads that have not ended.
    alive: Vec<usize>,
    /// The accesses of this turn.
    turn: u32,
    turns: u64,
    in_vain: u32,
}

impl Plan {
    /// Reads the next byte: the lower two bits select the thread, the others its accesses.
    fn next(&mut self) -> (usize, u32) {
        let byte = self.bytes.get(self.next).copied();
        self.next += 1;
        byte.map_or((0, TURN), |byte| {
            (usize::from(byte & 3), 1 + u32::from(byte >> 2))
        })
    }

    /// Chooses the thread after this one; returns `None` if all have ended.
    fn choose(&mut self, now: usize) -> Option<usize> {
        let (skips, turn) = self.next();
        self.turn = turn;
        self.turns += 1;
        assert!(self.turns < TURNS, "the threads do not come to an end");
        // Higher thread numbers come first, so that each thread has its turn if none is skipped.
        let behind = self.alive.iter().position(|thread| *thread > now);
        let first = behind.unwrap_or(0);
        let count = self.alive.len();
        (count != 0).then(|| self.alive[(first + skips) % count])
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    /// Runs each task on its own thread, in the turns of `plan`; returns the results.
    pub(super) fn take<T: Send, F: FnOnce() -> T + Send>(plan: &[u8], tasks: Vec<F>) -> Vec<T> {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| on_access(accessed));
        let count = tasks.len();
        let turns = Arc::new(Self {
            running: AtomicUsize::new(NOBODY),
            threads: Mutex::new(vec![None; count]),
            plan: Mutex::new(Plan {
                bytes: plan.to_vec(),
                next: 0,
                alive: (0..count).collect(),
                turn: TURN,
                turns: 0,
                in_vain: 0,
            }),
        });
        let there = Arc::new(Barrier::new(count + 1));
        thread::scope(|scope| {
            let begin = |(number, task)| turns.begin(scope, &there, number, task);
            let begun: Vec<_> = tasks.into_iter().enumerate().map(begin).collect();
            there.wait();
            let first = held(&turns.plan).choose(NOBODY);
            turns.go_on(first.expect("a thread"));
            let ended = begun.into_iter().map(|thread| thread.join());
            ended.map(|came| came.expect("its end")).collect()
        })
    }

    fn begin<'scope, T: Send + 'scope, F: FnOnce() -> T + Send + 'scope>(
        self: &Arc<Self>,
        scope: &'scope Scope<'scope, '_>,
        there: &Arc<Barrier>,
        number: usize,
        task: F,
    ) -> thread::ScopedJoinHandle<'scope, T> {
        let (turns, there) = (Arc::clone(self), Arc::clone(there));
        scope.spawn(move || {
            held(&turns.threads)[number] = Some(thread::current());
            there.wait();
            turns.wait(number);
            THREAD.set(Some((Arc::clone(&turns), number)));
            let came = task();
            LEFT.set(UNCOUNTED);
            turns.leave(number);
            came
        })
    }

    fn go_on(&self, next: usize) {
        self.running.store(next, Ordering::Release);
        if let Some(Some(thread)) = held(&self.threads).get(next) {
            thread.unpark();
        }
    }

    /// Sleeps until it is this thread's turn.
    fn wait(&self, number: usize) {
        while self.running.load(Ordering::Acquire) != number {
            thread::park();
        }
        LEFT.set(held(&self.plan).turn);
    }

    fn end_turn(&self, number: usize, in_vain: bool) {
        let next = {
            let mut plan = held(&self.plan);
            plan.in_vain = if in_vain { plan.in_vain + 1 } else { 0 };
            assert!(plan.in_vain < IN_VAIN, "a dead-lock");
            plan.choose(number)
        };
        match next {
            Some(next) if next != number => {
                self.go_on(next);
                self.wait(number);
            }
            _ => LEFT.set(held(&self.plan).turn),
        }
    }

    fn leave(&self, number: usize) {
        let next = {
            let mut plan = held(&self.plan);
            plan.alive.retain(|thread| *thread != number);
            plan.in_vain = 0;
            plan.choose(number)
        };
        if let Some(next) = next {
            self.go_on(next);
        }
    }
}

/// Counts an access to a word or a lock, which may end the thread's turn.
fn accessed(access: Access) {
    let left = LEFT.get();
    if left == UNCOUNTED {
        return;
    }
    let in_vain = access == Access::Again;
    if left > 1 && !in_vain {
        LEFT.set(left - 1);
        return;
    }
    // Accesses while the turn ends do not count.
    LEFT.set(UNCOUNTED);
    THREAD.with_borrow(|thread| {
        if let Some((turns, number)) = thread {
            turns.end_turn(*number, in_vain);
        }
    });
}
