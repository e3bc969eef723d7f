//! State of a child of `fork`: its own values, and values of its parent that no other thread was
//! changing.
//!
//! Threads of the parent are not in the child. A lock that one of them held stays held there for
//! ever, and a value that one of them was about to make once is never made. So no value that lasts
//! as long as the process is under a plain lock or made on first use: it is `PerProcess`,
//! [`Inherited`], or atomic.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::event::ThreadWait;
use dat_storage::forks::{have_own_values, prepare};

/// Set if forks are noticed. They are not as long as the system has no memory for the handlers.
static NOTICED: AtomicBool = AtomicBool::new(false);

/// Called by the loader before any call of the library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    notice();
    // The first call notes the start of the clock.
    ThreadWait::clock();
}

/// Registers handlers for every later fork.
fn notice() {
    // Registered first: `forked` finds the number of the child.
    if prepare().is_err() {
        return;
    }
    // SAFETY: `forked` stores to atomics and unlocks a lock that its own thread holds, which is
    // allowed in a child of a process with threads. The other handlers lock and unlock that lock.
    // The library stays loaded.
    let refused =
        unsafe { libc::pthread_atfork(Some(enter_fork), Some(leave_fork), Some(forked)) != 0 };
    NOTICED.store(!refused, Ordering::Relaxed);
}

extern "C" fn enter_fork() {
    enter();
}

extern "C" fn leave_fork() {
    leave();
}

extern "C" fn forked() {
    crate::adapter::abandon_all();
    leave();
}

/// Held by the one thread that changes inherited values, or that forks.
static TURN: Turn = Turn {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    owner: AtomicUsize::new(0),
    depth: AtomicUsize::new(0),
};

/// A recursive lock that the child of a fork owns as its parent did.
///
/// It has no thread-local values. For a library that was loaded late, the system makes them when a
/// thread first uses them, and ends the process if the heap is exhausted.
struct Turn {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    /// The thread that holds the lock, or 0. A thread keeps its number in a child of fork.
    owner: AtomicUsize,
    /// Number of entries of the owner; only the owner reads it.
    depth: AtomicUsize,
}

// SAFETY: threads access the lock through functions of the system only.
unsafe impl Sync for Turn {}

impl Turn {
    fn enter(&self) {
        // SAFETY: the call only returns the number of this thread.
        let this = unsafe { libc::pthread_self() } as usize;
        // A thread finds its own number only if it wrote it, and holds the lock.
        if self.owner.load(Ordering::Relaxed) != this {
            // SAFETY: the lock is static, was made by its initializer, and this thread does not
            // hold it.
            unsafe { libc::pthread_mutex_lock(self.lock.get()) };
            self.owner.store(this, Ordering::Relaxed);
        }
        self.depth.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.depth.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.owner.store(0, Ordering::Relaxed);
            // SAFETY: this thread holds the lock, or is the copy, in a child, of the thread that
            // held it.
            unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
        }
    }
}

fn enter() {
    TURN.enter();
}

fn leave() {
    TURN.leave();
}

/// A value that a child of `fork` inherits whole: no other thread of the parent has it at the fork.
///
/// A thread that has one may take others. It calls no function that waits and no other library,
/// because a thread that forks waits for it.
#[derive(Debug, Default)]
pub(crate) struct Inherited<T>(Mutex<T>);

impl<T> Inherited<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the value for this thread until the guard is dropped.
    pub(crate) fn lock(&self) -> InheritedGuard<'_, T> {
        let section = Section::begin();
        InheritedGuard {
            value: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            _section: section,
        }
    }
}

/// A guard of an inherited value.
#[derive(Debug)]
pub(crate) struct InheritedGuard<'a, T> {
    /// Dropped first: fields are dropped in this order.
    value: MutexGuard<'a, T>,
    _section: Section,
}

impl<T> Deref for InheritedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for InheritedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A part of a call during which no other thread forks.
#[derive(Debug)]
struct Section;

impl Section {
    fn begin() -> Self {
        enter();
        Self
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        leave();
    }
}

/// Returns true if this process and its children have values of their own.
pub(crate) fn detects_forks() -> bool {
    if !NOTICED.load(Ordering::Relaxed) {
        // The system had no memory when the library was loaded. No object is open yet that a child
        // could share.
        let _section = Section::begin();
        if !NOTICED.load(Ordering::Relaxed) {
            notice();
        }
    }
    have_own_values() && NOTICED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_noticed_through_the_loader() {
        assert!(detects_forks());
    }

    #[test]
    fn a_thread_returns_several_values_in_any_order() {
        let (first, second) = (Inherited::new(1), Inherited::new(2));
        let lock = first.lock();
        let other = second.lock();
        drop(lock);
        let turn = Turn {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            owner: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
        };
        assert_eq!(*other, 2);
        drop(other);
        assert_eq!(*first.lock(), 1);
        turn.enter();
        turn.enter();
        turn.leave();
        // SAFETY: the lock lives.
        let taken = || unsafe { libc::pthread_mutex_trylock(turn.lock.get()) };
        assert_eq!(taken(), libc::EBUSY);
        turn.leave();
        assert_eq!(turn.owner.load(Ordering::Relaxed), 0);
        assert_eq!(taken(), 0);
    }
}
