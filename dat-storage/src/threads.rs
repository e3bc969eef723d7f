//! Threads of libraries for C.
//!
//! They are not threads of the standard library, which cannot do without some of the system's
//! memory. The thread of RoCEv2 in software is one: opening such an adapter needs memory. The
//! process ends if the heap is exhausted when such a thread starts, or when any thread first asks
//! the standard library for its identity.

#![expect(unsafe_code, reason = "threads without signals are the system's")]

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

/// The function of a thread.
pub type Body = Box<dyn FnOnce() + Send>;

/// Bytes of the stack of a thread that calls functions of the consumer: the standard library's
/// default.
pub const STACK_FOR_AGENTS: usize = 2 << 20;
/// Bytes of other stacks. A process that locks its memory gets all pages of a stack at once.
const STACK: usize = 512 << 10;

/// A thread; equal to no other thread that runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread(pthread_t);

/// Returns the calling thread.
pub fn this_thread() -> Thread {
    // SAFETY: the call only returns the number of this thread.
    Thread(unsafe { pthread_self() })
}

/// Starts a thread that gets no signals, and calls no functions of the consumer.
///
/// # Errors
/// As `start_thread_with`.
pub fn start_thread(name: &'static CStr, body: Body) -> io::Result<()> {
    start_thread_with(STACK, name, body)
}

/// Starts a thread that gets no signals, with a stack of this size.
///
/// A program that waits for a signal with all its own threads does not know of this one, and the
/// system could deliver the signal to it. The program's handlers must not run while the library
/// holds locks.
///
/// # Errors
/// The error of the system, also for lack of memory.
pub fn start_thread_with(stack: usize, name: &'static CStr, body: Body) -> io::Result<()> {
    let begun = Box::into_raw(Box::new((name, body)));
    match without_signals(|| create(stack, begun.cast())) {
        0 => Ok(()),
        code => {
            // SAFETY: it was made above, and no thread got it.
            drop(unsafe { Box::from_raw(begun) });
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

/// Starts a detached thread that runs the body from `start_thread`.
fn create(stack: usize, begun: *mut c_void) -> i32 {
    let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<pthread_t>::uninit();
    // SAFETY: the first call makes the attributes, and the others use them only if it succeeds.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        let code = pthread_attr_init(attributes);
        if code != 0 {
            return code;
        }
        pthread_attr_setstacksize(attributes, stack);
        pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        let code = pthread_create(thread.as_mut_ptr(), attributes, run, begun);
        pthread_attr_destroy(attributes);
        code
    }
}

extern "C" fn run(begun: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` made it for this thread only.
    let (name, body) = *unsafe { Box::from_raw(begun.cast::<(&'static CStr, Body)>()) };
    // SAFETY: the thread is this one, and the name a string. The system ignores a name that is too
    // long.
    unsafe { pthread_setname_np(pthread_self(), name.as_ptr()) };
    // A panic has printed its message; nothing else is done.
    let _ended = catch_unwind(AssertUnwindSafe(body));
    ptr::null_mut()
}

/// Calls `start` with all signals blocked, so that threads started by it get none.
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call makes the set that the second one reads. The second one writes the
    // former mask, or fails and changes nothing.
    let blocked = unsafe {
        sigfillset(all.as_mut_ptr());
        pthread_sigmask(SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = start();
    if blocked {
        // SAFETY: the call above wrote the mask.
        unsafe { pthread_sigmask(SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    result
}
