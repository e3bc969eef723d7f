//! Files that programs look for before they ask for devices: others stand for them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use super::open::next;

/// Paths, and those in their place: the file of the device for UCX, the folder of all devices for
/// Open MPI.
const STAND_INS: [(&CStr, &CStr); 2] = [
    (c"/dev/infiniband/uverbs0", c"/dev/null"),
    (c"/sys/class/infiniband", c"/"),
];

type Stat = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
type Access = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

/// Returns the path of a file that is there, in place of the device's.
fn actual(path: *const c_char) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: the caller passes null, which is no path, or a text.
    let named = unsafe { CStr::from_ptr(path) };
    let found = STAND_INS.iter().find(|(missing, _)| *missing == named);
    found.map_or(path, |(_, there)| there.as_ptr())
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
