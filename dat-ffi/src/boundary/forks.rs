//! Which of a line of processes this is.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

static FORKS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between the process that asked first and this one.
pub(crate) fn forks() -> usize {
    static REGISTERED: Once = Once::new();
    // Where the system has no memory for it, children are taken for their parents.
    // SAFETY: the function does nothing but count, which is allowed in a child of a process with threads; the library stays loaded.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
    FORKS.load(Ordering::Relaxed)
}
