//! Cancellation of threads that wait, by `pthread_cancel`.
//!
//! A thread ends by it where it calls `pthread_testcancel`, in [`in_steps`] alone: the frames from there to C have nothing to drop, and
//! what they hold is dropped by handlers of the C library, as those of C are.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr;

/// Room for what the C library notes of a handler: four words with glibc, three with musl.
type Handler = [usize; 4];

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

// What `pthread_cleanup_push` of musl calls, and that of glibc did once: both have it.
unsafe extern "C" {
    fn _pthread_cleanup_push(
        handler: *mut Handler,
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(handler: *mut Handler, call: c_int);
}

// Those that a thread may end in.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

extern "C" fn drop_value<T>(value: *mut c_void) {
    // SAFETY: `held` gives a value that it does not drop itself once the thread ends.
    unsafe { ptr::drop_in_place(value.cast::<T>()) };
}

/// Calls `call` with a value that is dropped when it returns, and when the thread is cancelled in it. What `call` owns is not; it does not panic.
pub(crate) fn held<T, R>(value: T, call: impl FnOnce(&mut T) -> R) -> R {
    let mut value = ManuallyDrop::new(value);
    let place: *mut T = (&raw mut value).cast();
    let mut handler = MaybeUninit::<Handler>::uninit();
    let handler = handler.as_mut_ptr();
    // SAFETY: room and value stay where they are until the handler is taken away below, or was called as the thread left this frame.
    unsafe { _pthread_cleanup_push(handler, drop_value::<T>, place.cast()) };
    // SAFETY: nobody else has the value, but for the handler when `call` is over.
    let result = call(unsafe { &mut *place });
    // What is dropped may call the system.
    uncancelled(|| {
        // SAFETY: the one that was put there last, as each `held` takes away its own.
        unsafe { _pthread_cleanup_pop(handler, 0) };
        // SAFETY: it is dropped once: the handler is not called any more.
        unsafe { ptr::drop_in_place(place) };
    });
    result
}

/// Calls `step` until it has a result. The thread may be cancelled before each step, and not in one. `step` owns nothing.
pub(crate) fn in_steps<R>(mut step: impl FnMut() -> Option<R>) -> R {
    loop {
        // SAFETY: all frames up to C have nothing to drop: those of `held` and its callers.
        unsafe { pthread_testcancel() };
        if let Some(result) = uncancelled(&mut step) {
            return result;
        }
    }
}

/// Calls what the thread is not cancelled in: a driver's calls of the system are cancellation points. A panic ends the process.
pub(crate) fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let mut state = 0;
    // SAFETY: there is a place for the former state.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
    let result = contained(call);
    // SAFETY: as the thread had it.
    unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
    result
}

/// Calls what no panic leaves: one, which would be a fault of ours, ends the process.
#[inline(always)]
fn contained<R>(call: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(_) => process::abort(),
    }
}
