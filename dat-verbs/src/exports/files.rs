//! The device file that UCX looks for: it is there, as `/dev/null`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use super::open::next;

/// The file of the device.
const DEVICE: &CStr = c"/dev/infiniband/uverbs0";
/// A file that any user may read and write.
const ANY: &CStr = c"/dev/null";

type Stat = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
type Access = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

/// Returns the path of a file that is there, in place of the device's.
fn actual(path: *const c_char) -> *const c_char {
    // SAFETY: the caller passes null, which is no path, or a text.
    match !path.is_null() && unsafe { CStr::from_ptr(path) } == DEVICE {
        true => ANY.as_ptr(),
        false => path,
    }
}

/// Calls the next function of a kind with an answer about a path.
///
/// # Safety
/// `to` has room for the answer of the function.
unsafe fn next_stat(function: *mut c_void, path: *const c_char, to: *mut c_void) -> c_int {
    if function.is_null() {
        nix::errno::Errno::ENOSYS.set();
        return -1;
    }
    // SAFETY: the functions that are passed have this type.
    let function: Stat = unsafe { core::mem::transmute(function) };
    // SAFETY: as the caller says.
    unsafe { function(actual(path), to) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stat(path: *const c_char, to: *mut c_void) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the program passes room for the answer.
    unsafe { next_stat(next(c"stat", &NEXT), path, to) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stat64(path: *const c_char, to: *mut c_void) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: as above.
    unsafe { next_stat(next(c"stat64", &NEXT), path, to) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let function = next(c"access", &NEXT);
    if function.is_null() {
        nix::errno::Errno::ENOSYS.set();
        return -1;
    }
    // SAFETY: the function with this name has this type.
    let function: Access = unsafe { core::mem::transmute(function) };
    // SAFETY: the program passes a path.
    unsafe { function(actual(path), mode) }
}
