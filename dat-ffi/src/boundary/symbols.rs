//! Functions of the registry that has loaded this provider.

use std::ffi::{CStr, c_void};

use super::layout::{FunctionTable, ProviderInfo};
use crate::handles::CHandle;

type Enter = unsafe extern "C" fn(*const FunctionTable, *const ProviderInfo) -> u32;
type ConvertIa = unsafe extern "C" fn(CHandle, *mut CHandle) -> u32;

/// The functions of the registry that providers call.
///
/// They are looked up at run time. A link dependency on the registry would bind the provider to one
/// of them.
pub(crate) struct Registry;

impl Registry {
    /// Registers a provider; returns false if there is no registry, or if it refuses.
    pub(crate) fn add(table: &'static FunctionTable, info: &ProviderInfo) -> bool {
        Self::tell(c"dat_registry_add_provider", table, info)
    }

    /// Removes a provider; returns false if there is no registry, or if it does not know the
    /// provider.
    pub(crate) fn remove(table: &'static FunctionTable, info: &ProviderInfo) -> bool {
        Self::tell(c"dat_registry_remove_provider", table, info)
    }

    fn tell(name: &CStr, table: &'static FunctionTable, info: &ProviderInfo) -> bool {
        let Some(function) = find(name) else {
            return false;
        };
        // SAFETY: a function of this name has this signature, by the contract between registry and
        // providers.
        let function: Enter = unsafe { std::mem::transmute(function) };
        // SAFETY: the table lives as long as the process; the registry copies all that it keeps of
        // `info`.
        unsafe { function(table, info) == 0 }
    }

    /// Returns the consumer's handle of an adapter, or `ia` if the registry has none.
    pub(crate) fn consumer_handle(ia: CHandle) -> CHandle {
        let Some(function) = find(c"dats_get_ia_handle") else {
            return ia;
        };
        // SAFETY: as above.
        let function: ConvertIa = unsafe { std::mem::transmute(function) };
        let mut known = CHandle::NULL;
        // SAFETY: `known` has room for the answer.
        match unsafe { function(ia, &raw mut known) } {
            0 => known,
            _ => ia,
        }
    }
}

/// Returns the address of a function of the registry.
///
/// It is in the global scope of the process, or in a registry that was loaded into a scope of its
/// own.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !found.is_null() {
        return Some(found);
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name ends with a zero byte. No library is loaded, so none of its code runs.
    let library = unsafe { libc::dlopen(c"libdat2.so.2".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is loaded, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: opened above; the program that loaded it still has it open.
    unsafe { libc::dlclose(library) };
    (!found.is_null()).then_some(found)
}
