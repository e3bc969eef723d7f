//! Cancellation of threads that wait, by `pthread_cancel`.
//!
//! A thread ends only where it calls `pthread_testcancel`, in [`in_steps`]. The frames from there
//! to C have nothing to drop. Handlers of the C library drop the values that they hold, as they do
//! for C frames.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr;

/// Storage of the C library for a handler: four words with glibc, three with musl.
type Handler = [usize; 4];

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

// musl's `pthread_cleanup_push` calls these, and glibc's once did: both libraries have them.
unsafe extern "C" {
    fn _pthread_cleanup_push(
        handler: *mut Handler,
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(handler: *mut Handler, call: c_int);
}

// A thread may end in these.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

extern "C" fn drop_value<T>(value: *mut c_void) {
    // SAFETY: `guarded` passes a value that it does not drop itself if the thread ends.
    unsafe { ptr::drop_in_place(value.cast::<T>()) };
}

/// Calls `call` with a value that is dropped afterwards, even if the thread is cancelled.
///
/// Values that `call` owns are not dropped by a cancellation. `call` does not panic.
pub(crate) fn guarded<T, R>(value: T, call: impl FnOnce(&mut T) -> R) -> R {
    let mut value = ManuallyDrop::new(value);
    let target: *mut T = (&raw mut value).cast();
    let mut handler = MaybeUninit::<Handler>::uninit();
    let handler = handler.as_mut_ptr();
    // SAFETY: storage and value stay where they are until the handler is removed below, or was
    // called as the thread left this frame.
    unsafe { _pthread_cleanup_push(handler, drop_value::<T>, target.cast()) };
    // SAFETY: only `call` has the value; the handler gets it when `call` is over.
    let result = call(unsafe { &mut *target });
    // The drop may call the system.
    uncancelled(|| {
        // SAFETY: it is the handler that was pushed last, as each `guarded` removes its own.
        unsafe { _pthread_cleanup_pop(handler, 0) };
        // SAFETY: it is dropped once: the handler is removed.
        unsafe { ptr::drop_in_place(target) };
    });
    result
}

/// Calls `step` until it has a result; the thread may be cancelled before each step.
///
/// It is not cancelled during a step. `step` owns nothing.
pub(crate) fn in_steps<R>(mut step: impl FnMut() -> Option<R>) -> R {
    loop {
        // SAFETY: the frames up to C, those of `guarded` and its callers, have nothing to drop.
        unsafe { pthread_testcancel() };
        if let Some(result) = uncancelled(&mut step) {
            return result;
        }
    }
}

/// Calls a function that the thread is not cancelled in; a panic ends the process.
///
/// System calls of a driver are cancellation points.
pub(crate) fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let _until_return = Uncancelled::new();
    contained(call)
}

/// A scope that the thread is not cancelled in.
pub(crate) struct Uncancelled {
    /// State of the thread before.
    state: c_int,
}

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let mut state = 0;
        // SAFETY: `state` has room for the former state.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
        Self { state }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that the thread had.
        unsafe { pthread_setcancelstate(self.state, ptr::null_mut()) };
    }
}

/// Calls a function that no panic leaves: a panic, a bug of this library, ends the process.
#[inline]
fn contained<R>(call: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(_) => process::abort(),
    }
}
