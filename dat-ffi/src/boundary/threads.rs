//! Threads of the library.
//!
//! They are not threads of the standard library. Those take memory from the system that cannot be
//! refused: the process ends where the heap is exhausted, when such a thread starts and when any
//! thread first asks the standard library who it is.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use libc::{
    SIG_SETMASK, pthread_attr_destroy, pthread_attr_init, pthread_attr_setdetachstate,
    pthread_attr_setstacksize, pthread_attr_t, pthread_create, pthread_self, pthread_setname_np,
    pthread_sigmask, pthread_t, sigfillset, sigset_t,
};

/// What a thread does.
type Body = Box<dyn FnOnce() + Send>;

/// Bytes of a stack, as a thread of the standard library has them.
const STACK: usize = 2 << 20;

/// A thread; equal to another as long as both run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thread(pthread_t);

/// The thread that calls.
pub(crate) fn this_thread() -> Thread {
    // SAFETY: tells which thread it is.
    Thread(unsafe { pthread_self() })
}

/// Starts a thread that gets no signals: a program that waits for one with all its own threads does
/// not know ours, to which the system could give it, and its handlers shall not run while we hold
/// locks.
///
/// # Errors
/// What the system says, for want of memory as well.
pub(crate) fn start_thread(name: &'static CStr, body: Body) -> io::Result<()> {
    let begun = Box::into_raw(Box::new((name, body)));
    match without_signals(|| create(begun.cast())) {
        0 => Ok(()),
        code => {
            // SAFETY: it was made above, and no thread has it.
            drop(unsafe { Box::from_raw(begun) });
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

/// Starts a detached thread with what `start_thread` made.
fn create(begun: *mut c_void) -> i32 {
    let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<pthread_t>::uninit();
    // SAFETY: the attributes are made by the first call, and used by the others if there are any.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        let code = pthread_attr_init(attributes);
        if code != 0 {
            return code;
        }
        pthread_attr_setstacksize(attributes, STACK);
        pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        let code = pthread_create(thread.as_mut_ptr(), attributes, run, begun);
        pthread_attr_destroy(attributes);
        code
    }
}

extern "C" fn run(begun: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` made it, for this thread only.
    let (name, body) = *unsafe { Box::from_raw(begun.cast::<(&'static CStr, Body)>()) };
    // SAFETY: the thread is this one, and the name a string. A name that is too long is not given.
    unsafe { pthread_setname_np(pthread_self(), name.as_ptr()) };
    // A panic was printed; there is nothing to add.
    let _ended = catch_unwind(AssertUnwindSafe(body));
    ptr::null_mut()
}

/// Calls `start`, whose threads get no signals.
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call makes the set that the second one reads; that writes the other one, or
    // fails and changes nothing.
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
