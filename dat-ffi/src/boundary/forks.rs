//! Which of a line of processes this is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

static FORKS: AtomicUsize = AtomicUsize::new(0);
/// Forks are not noticed: the system had no memory for that.
static UNREGISTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    crate::adapter::abandon_all();
}

/// How many forks lie between the process that asked first and this one.
pub(crate) fn forks() -> usize {
    static REGISTERED: Once = Once::new();
    // SAFETY: the function stores to atomics only, which is allowed in a child of a process with threads; the library stays loaded.
    REGISTERED.call_once(|| unsafe {
        let refused = libc::pthread_atfork(None, None, Some(forked)) != 0;
        UNREGISTERED.store(refused, Ordering::Relaxed);
    });
    FORKS.load(Ordering::Relaxed)
}

/// Calls functions of ours in the thread that forks: before, and after in the parent and the child. Without memory for that, a child
/// may wait for a lock that was held.
pub(crate) fn around_forks(before: extern "C" fn(), after: extern "C" fn()) {
    // SAFETY: the functions are safe to call; the library that has them stays loaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

/// Processes in a line of forks that have values of their own.
const GENERATIONS: usize = 64;

/// A value for each of a line of processes: other threads held the parent's locks, and are not in the child.
#[derive(Debug)]
pub(crate) struct PerProcess<T>([OnceLock<T>; GENERATIONS]);

impl<T: Default> PerProcess<T> {
    /// No process has its value yet.
    pub(crate) const fn new() -> Self {
        Self([const { OnceLock::new() }; GENERATIONS])
    }

    /// The value of this process. Those beyond the last generation have one with it.
    pub(crate) fn this(&self) -> &T {
        let [others @ .., last] = &self.0;
        others.get(forks()).unwrap_or(last).get_or_init(T::default)
    }
}

/// Whether this process has values of its own, and its children are told from it.
pub(crate) fn is_told_apart() -> bool {
    forks() < GENERATIONS - 1 && !UNREGISTERED.load(Ordering::Relaxed)
}
