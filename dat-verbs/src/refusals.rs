//! Functions that are not supported, by the way in which they tell.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use nix::errno::Errno;

/// Returns a null pointer and sets the error.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    null_mut()
}

/// Returns -1 and sets the error.
///
/// The width serves functions that return a number of bytes, too.
pub(crate) extern "C" fn minus() -> isize {
    Errno::EOPNOTSUPP.set();
    -1
}

/// Returns the error, and sets it.
pub(crate) extern "C" fn code() -> c_int {
    Errno::EOPNOTSUPP.set();
    Errno::EOPNOTSUPP as c_int
}

/// Returns 0, for functions that tell what a device has.
pub(crate) const extern "C" fn zero() -> u64 {
    0
}

/// Does nothing.
pub(crate) const extern "C" fn nothing() {}
