//! Calls of the system on the way of data, in which no thread is cancelled.
//!
//! `write` and `read` are cancellation points: a C thread that ends there leaves frames of Rust that hold locks. Calls that make, change or
//! free objects are sheltered as a whole by the C libraries, posts and looks at queues are not: they call the system on some devices only.

use core::ffi::c_int;
use core::ptr;

use rdma_sys::{ibv_cq, ibv_mw, ibv_mw_bind, ibv_qp, ibv_send_wr};

use super::Context;
use super::completion_queue::Notify;
use super::send_list::{Bind, Post};

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Calls what the thread is not cancelled in.
pub(super) fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let mut state = 0;
    // SAFETY: there is a place for the former state.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
    let result = call();
    // SAFETY: as the thread had it. Cancellation waits for the next cancellation point, which this is none of.
    unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
    result
}

/// Vendors whose doorbells are mapped registers. Soft-RoCE, soft iWARP and unknown devices use
/// `write`.
const RUNG_BY_REGISTERS: [u32; 5] = [
    0x02C9, // Mellanox, NVIDIA
    0x14E4, // Broadcom
    0x15AD, // VMware
    0x1D0F, // Amazon
    0x1DED, // Alibaba
];

/// Returns true if a doorbell of this vendor's devices may be a system call.
pub(super) fn may_call_the_system(vendor: u32) -> bool {
    !RUNG_BY_REGISTERS.contains(&vendor)
}

/// The device's function that takes send requests, sheltered if it may call the system.
pub(super) fn post(context: &Context) -> Option<Post> {
    let post = context.operations().post_send?;
    Some(if context.calls_the_system() {
        post_uncancelled
    } else {
        post
    })
}

/// As `post`, for the function that binds windows of type 1.
pub(super) fn bind(context: &Context) -> Option<Bind> {
    let bind = context.operations().bind_mw?;
    Some(if context.calls_the_system() {
        bind_uncancelled
    } else {
        bind
    })
}

/// As `post`, for the function that asks for notifications.
pub(super) fn notify(context: &Context) -> Option<Notify> {
    let notify = context.operations().req_notify_cq?;
    Some(if context.calls_the_system() {
        notify_uncancelled
    } else {
        notify
    })
}

unsafe extern "C" fn post_uncancelled(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair lives, as the caller promises, and so does its device, whose table nobody changes.
    match unsafe { (*(*pair).context).ops.post_send } {
        // SAFETY: as the caller promises.
        Some(post) => uncancelled(|| unsafe { post(pair, first, bad) }),
        None => libc::ENOSYS,
    }
}

unsafe extern "C" fn bind_uncancelled(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: as in `post_uncancelled`.
    match unsafe { (*(*pair).context).ops.bind_mw } {
        // SAFETY: as the caller promises.
        Some(call) => uncancelled(|| unsafe { call(pair, window, bind) }),
        None => libc::ENOSYS,
    }
}

unsafe extern "C" fn notify_uncancelled(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the completion queue lives, as the caller promises; the rest is as in `post_uncancelled`.
    match unsafe { (*(*queue).context).ops.req_notify_cq } {
        // SAFETY: as the caller promises.
        Some(notify) => uncancelled(|| unsafe { notify(queue, solicited_only) }),
        None => libc::ENOSYS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_sheltered() {
        assert!(may_call_the_system(0xFF_FFFF), "soft-RoCE");
        assert!(may_call_the_system(0));
        assert!(!may_call_the_system(0x02C9));
    }

    #[test]
    fn the_state_is_as_it_was() {
        let state = || {
            let mut state = -1;
            // SAFETY: there is a place for the former state.
            unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
            // SAFETY: as it was.
            unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
            state
        };
        let before = state();
        assert_eq!(
            uncancelled(|| (state(), uncancelled(state), state())),
            (1, 1, 1)
        );
        assert_eq!(state(), before);
    }
}
