//! Functions that this library does not have yet.
//!
//! One that is missing would run the original on our objects. Their arguments do not matter: a
//! function of C may be called with more of them.

use core::ffi::{c_int, c_void};

use crate::c;

/// Returns an error number, as calls of verbs do.
pub(crate) extern "C" fn number() -> c_int {
    libc::EOPNOTSUPP
}

/// Returns null with an error number.
pub(crate) extern "C" fn null() -> *mut c_void {
    c::fail(libc::EOPNOTSUPP)
}

/// Returns -1 with an error number, as calls of rdma_cm do.
pub(crate) extern "C" fn minus_one() -> c_int {
    c::fails(libc::EOPNOTSUPP)
}

/// Does nothing, and returns nothing.
pub(crate) extern "C" fn nothing() {}

/// As [`minus_one`], for calls that return a length.
pub(crate) extern "C" fn minus_one_long() -> isize {
    c::set_errno(libc::EOPNOTSUPP);
    -1
}
