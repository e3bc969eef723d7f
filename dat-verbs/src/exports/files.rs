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

/// A function of the C library about a path, with a further argument.
type OfPath<T> = unsafe extern "C" fn(*const c_char, T) -> c_int;

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

/// Calls the next function of a name about a path.
///
/// # Safety
/// The function has this type, and takes the argument.
unsafe fn call_next<T>(
    name: &'static CStr,
    kept: &AtomicPtr<c_void>,
    path: *const c_char,
    argument: T,
) -> c_int {
    let function = next(name, kept);
    if function.is_null() {
        nix::errno::Errno::ENOSYS.set();
        return -1;
    }
    // SAFETY: as the caller says.
    let function: OfPath<T> = unsafe { core::mem::transmute(function) };
    // SAFETY: as the caller says.
    unsafe { function(actual(path), argument) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stat(path: *const c_char, to: *mut c_void) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the program passes a path, and room for the answer.
    unsafe { call_next(c"stat", &NEXT, path, to) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stat64(path: *const c_char, to: *mut c_void) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: as above.
    unsafe { call_next(c"stat64", &NEXT, path, to) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the program passes a path.
    unsafe { call_next(c"access", &NEXT, path, mode) }
}
