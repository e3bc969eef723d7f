//! Programs that open libibverbs or librdmacm by name get this library.
//!
//! It has no name of its own (no soname), so that it satisfies references with versions of any
//! release. A `dlopen` of either name returns a handle of it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use std::sync::OnceLock;

/// Files whose place the library takes.
const NAMES: [&[u8]; 4] = [
    b"libibverbs.so.1",
    b"libibverbs.so",
    b"librdmacm.so.1",
    b"librdmacm.so",
];

/// A function that opens a library.
type Open = extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Returns the next `dlopen`.
fn next() -> *mut c_void {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let address = *NEXT.get_or_init(|| {
        // SAFETY: the name is a text; the function exists in each C library.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) as usize }
    });
    core::ptr::with_exposed_provenance_mut(address)
}

/// Returns a handle of this library for a name that it stands for, or null, and the next `dlopen`.
extern "C" fn ours(name: *const c_char, flags: c_int, open: &mut *mut c_void) -> *mut c_void {
    *open = next();
    if name.is_null() {
        return null_mut();
    }
    // SAFETY: the name is a text, as the manual demands.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    if !NAMES.contains(&file) {
        return null_mut();
    }
    // SAFETY: zeros are a value of it.
    let mut own: libc::Dl_info = unsafe { core::mem::zeroed() };
    let place: extern "C" fn(*const c_char, c_int, &mut *mut c_void) -> *mut c_void = ours;
    // SAFETY: the address is that of a function of this library.
    if unsafe { libc::dladdr(place as *const c_void, &raw mut own) } == 0 {
        return null_mut();
    }
    // SAFETY: the function that is called `dlopen` has this type.
    let open: Open = unsafe { core::mem::transmute(*open) };
    open(own.dli_fname, flags)
}

/// Opens a library. Other names than ours go on as if the program had called the next function:
/// its own search path counts.
///
/// # Safety
/// As of the function of the C library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
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

/// As on other processors.
///
/// # Safety
/// As of the function of the C library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "add x2, sp, #32",
        "bl {ours}",
        "mov x3, x0",
        "ldp x0, x1, [sp, #16]",
        "ldr x16, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbnz x3, 2f",
        "br x16",
        "2: mov x0, x3",
        "ret",
        ours = sym ours,
    );
}
