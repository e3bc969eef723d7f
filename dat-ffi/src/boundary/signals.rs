//! Signals of the process that our threads leave alone.

use std::mem::MaybeUninit;
use std::ptr;

use libc::{SIG_SETMASK, pthread_sigmask, sigfillset, sigset_t};

/// Calls `start`, whose threads get no signals: a program that waits for one with all its own threads does not know ours, to
/// which the system could give it, and its handlers shall not run while we hold locks.
pub(crate) fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call makes the set that the second one reads; that writes the other one, or fails and changes nothing.
    let blocked = unsafe {
        sigfillset(all.as_mut_ptr());
        pthread_sigmask(SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = start();
    if blocked {
        // SAFETY: the call above wrote the set.
        unsafe { pthread_sigmask(SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    result
}
