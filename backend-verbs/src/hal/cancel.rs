//! System calls of the data path, in which no thread is cancelled.
//!
//! `write` and `read` are cancellation points: a C thread that ends there leaves frames of Rust
//! that hold locks. The C libraries protect calls that make, change or free objects as a whole.
//! Posts and polls are not protected: they make system calls on some devices only.

use core::ffi::c_int;
use core::ptr;

use rdma_sys::{ibv_cq, ibv_mw, ibv_mw_bind, ibv_qp, ibv_send_wr};

use super::Context;
use super::completion_queue::Notify;
use super::send_list::{Bind, Post};

/// Value of `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs `call` with cancellation disabled.
pub(super) fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let mut state = 0;
    // SAFETY: the former state has room.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
    let result = call();
    // SAFETY: restores the former state. This is no cancellation point; a pending cancellation
    // waits for the next one.
    unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
    result
}

/// Vendors whose doorbells are mapped registers.
///
/// Soft-RoCE, soft iWARP and unknown devices use `write`.
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

/// Returns the device's function for send requests, protected if it may make system calls.
pub(super) fn post(context: &Context) -> Option<Post> {
    let post = context.operations().post_send?;
    Some(if context.calls_the_system() {
        post_uncancelled
    } else {
        post
    })
}

/// As `post`, for the function that binds type 1 windows.
pub(super) fn bind(context: &Context) -> Option<Bind> {
    let bind = context.operations().bind_mw?;
    Some(if context.calls_the_system() {
        bind_uncancelled
    } else {
        bind
    })
}

/// As `post`, for the function that requests notifications.
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
    // SAFETY: the caller promises that the queue pair lives, and so does its device, whose table
    // never changes.
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
    // SAFETY: the caller promises that the completion queue lives; the rest is as in
    // `post_uncancelled`.
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
    fn drivers_of_unknown_vendors_are_sheltered() {
        assert!(may_call_the_system(0xFF_FFFF), "soft-RoCE");
        assert!(may_call_the_system(0));
        assert!(!may_call_the_system(0x02C9));
    }

    #[test]
    fn the_cancellation_state_is_restored() {
        let state = || {
            let mut state = -1;
            // SAFETY: the former state has room.
            unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
            // SAFETY: restores the former state.
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
