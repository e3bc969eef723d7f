//! `dlopen` of libibverbs and librdmacm by name gives this library.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Names of files that this library stands for.
const STANDS_FOR: [&[u8]; 4] = [
    b"libibverbs.so.1",
    b"libibverbs.so",
    b"librdmacm.so.1",
    b"librdmacm.so",
];

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Returns the function of a name that this library hides; null if there is none.
///
/// It is looked up once: that resets the error of the caller's `dlerror`.
pub(super) fn next(name: &'static CStr, kept: &AtomicPtr<c_void>) -> *mut c_void {
    let known = kept.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    kept.store(found, Ordering::Relaxed);
    found
}

/// Stands for the next `dlopen` if there is none.
const extern "C" fn none(_name: *const c_char, _flags: c_int) -> *mut c_void {
    null_mut()
}

fn stands_for(name: &CStr) -> bool {
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
    file.is_some_and(|file| STANDS_FOR.contains(&file))
}

/// Returns this library's handle for a name that it stands for, or null; and the next `dlopen`.
extern "C" fn ours(name: *const c_char, flags: c_int, next_open: &mut *mut c_void) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    *next_open = next(c"dlopen", &NEXT);
    if next_open.is_null() {
        *next_open = none as *mut c_void;
    }
    if name.is_null() {
        return null_mut();
    }
    // SAFETY: the caller of `dlopen` passes a text.
    if !stands_for(unsafe { CStr::from_ptr(name) }) {
        return null_mut();
    }
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `info` has room for what is known of the address.
    if unsafe { libc::dladdr(ours as *const c_void, info.as_mut_ptr()) } == 0 {
        return null_mut();
    }
    // SAFETY: the call succeeded, and filled it.
    let own = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the function with the name `dlopen` has this type.
    let open: Open = unsafe { core::mem::transmute(*next_open) };
    // SAFETY: the name is the loader's, of a library that is loaded.
    unsafe { open(own, flags) }
}

/// Opens a library.
///
/// For other names it jumps to the next `dlopen`: that looks at its caller, whose search path
/// counts.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 24",
        "lea rdx, [rsp + 8]",
        "call {ours}",
        "mov rdx, [rsp + 8]",
        "add rsp, 24",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "jmp rdx",
        "2: ret",
        ours = sym ours,
    );
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "stp x0, x1, [sp, #16]",
        "add x2, sp, #32",
        "bl {ours}",
        "mov x9, x0",
        "ldr x16, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "cbnz x9, 2f",
        "br x16",
        "2: mov x0, x9",
        "ret",
        ours = sym ours,
    );
}
