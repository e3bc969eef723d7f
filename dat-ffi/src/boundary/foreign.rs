//! Calls of registries into libraries of other providers, and reads of their objects.

use std::ffi::{CStr, c_char, c_void};

use super::Symbol;
use super::layout::ProviderInfo;
use crate::handles::CHandle;

/// Reads the word at a handle, which may be any value; `None` if the memory is not readable.
pub(crate) fn first_word(handle: CHandle) -> Option<usize> {
    let mut word = 0usize;
    let local = libc::iovec {
        iov_base: (&raw mut word).cast(),
        iov_len: size_of::<usize>(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(handle.address()),
        iov_len: size_of::<usize>(),
    };
    // SAFETY: the kernel copies into `word`, which has room, and refuses addresses without memory.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (copied == size_of::<usize>().cast_signed()).then_some(word)
}

/// Calls `dat_provider_init` of a library; `init` was found by that name.
pub(crate) fn begin(init: Symbol, info: &ProviderInfo, instance_data: &CStr) {
    type Init = extern "C" fn(*const ProviderInfo, *const c_char);
    // SAFETY: a function of this name has this signature, by the contract between registry and
    // providers.
    let init = unsafe { std::mem::transmute::<*mut c_void, Init>(init.pointer()) };
    init(info, instance_data.as_ptr());
}

/// Calls `dat_provider_explain` of a library of this project; `explain` was found by that name.
pub(crate) fn explanation(
    explain: Symbol,
    info: &ProviderInfo,
    instance_data: &CStr,
) -> Option<String> {
    type Explain = extern "C" fn(*const ProviderInfo, *const c_char) -> *const c_char;
    // SAFETY: a function of this name is this project's, and has this signature.
    let explain = unsafe { std::mem::transmute::<*mut c_void, Explain>(explain.pointer()) };
    let text = explain(info, instance_data.as_ptr());
    if text.is_null() {
        return None;
    }
    // SAFETY: it is text that stays as long as the process.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Calls `dat_ia_openv` of a registry; returns the adapter or the code of the error.
///
/// `openv` was found by that name.
pub(crate) fn open(openv: Symbol, info: &ProviderInfo) -> Result<CHandle, u32> {
    type Openv = extern "C" fn(*const u8, i32, *mut CHandle, *mut CHandle, u32, u32, u32) -> u32;
    /// Minimum queue length of the asynchronous event dispatcher.
    const EVENTS: i32 = 8;
    // SAFETY: a function of this name has this signature, in both versions of the interface.
    let openv = unsafe { std::mem::transmute::<*mut c_void, Openv>(openv.pointer()) };
    let mut dispatcher = CHandle::NULL;
    let mut adapter = CHandle::NULL;
    let code = openv(
        info.ia_name.as_ptr(),
        EVENTS,
        &raw mut dispatcher,
        &raw mut adapter,
        info.major,
        info.minor,
        info.is_thread_safe,
    );
    match code {
        0 => Ok(adapter),
        refused => Err(refused),
    }
}

/// Calls `dat_ia_close` of a registry with `DAT_CLOSE_ABRUPT_FLAG`.
///
/// `close` was found by that name.
pub(crate) fn close(close: Symbol, adapter: CHandle) {
    type Close = extern "C" fn(CHandle, u32) -> u32;
    const ABRUPT: u32 = 0;
    // SAFETY: a function of this name has this signature, in both versions of the interface.
    let close = unsafe { std::mem::transmute::<*mut c_void, Close>(close.pointer()) };
    let _code: u32 = close(adapter, ABRUPT);
}

/// Calls `dat_provider_fini` of a library; `fini` was found by that name.
pub(crate) fn end(fini: Symbol, info: &ProviderInfo) {
    type Fini = extern "C" fn(*const ProviderInfo);
    // SAFETY: as for `dat_provider_init`.
    let fini = unsafe { std::mem::transmute::<*mut c_void, Fini>(fini.pointer()) };
    fini(info);
}
