//! The registry that has loaded us.

use std::ffi::{CStr, c_void};

use super::layout::{ProviderInfo, Table};
use crate::handles::CHandle;

type Enter = unsafe extern "C" fn(*const Table, *const ProviderInfo) -> u32;
type ConvertIa = unsafe extern "C" fn(CHandle, *mut CHandle) -> u32;

/// The functions of the registry that providers call.
///
/// Looked for when they are needed: naming the registry as a dependency would bind us to one.
pub(crate) struct Registry;

impl Registry {
    /// Tells the registry of a provider; false if there is no registry, or it does not want it.
    pub(crate) fn add(table: &'static Table, info: &ProviderInfo) -> bool {
        Self::tell(c"dat_registry_add_provider", table, info)
    }

    /// Takes a provider back; false if there is no registry, or it does not know it.
    pub(crate) fn remove(table: &'static Table, info: &ProviderInfo) -> bool {
        Self::tell(c"dat_registry_remove_provider", table, info)
    }

    fn tell(name: &CStr, table: &'static Table, info: &ProviderInfo) -> bool {
        let Some(function) = find(name) else {
            return false;
        };
        // SAFETY: a function of this name has this signature, by the contract between registry and providers.
        let function: Enter = unsafe { std::mem::transmute(function) };
        // SAFETY: the table lives as long as the process; the registry copies what it keeps of the rest.
        unsafe { function(table, info) == 0 }
    }

    /// The handle by which the consumer knows an adapter; ours if the registry has none.
    pub(crate) fn consumer_handle(ia: CHandle) -> CHandle {
        let Some(function) = find(c"dats_get_ia_handle") else {
            return ia;
        };
        // SAFETY: as above.
        let function: ConvertIa = unsafe { std::mem::transmute(function) };
        let mut known = CHandle::NULL;
        // SAFETY: there is room for the answer.
        match unsafe { function(ia, &raw mut known) } {
            0 => known,
            _ => ia,
        }
    }
}

/// Where a function of the registry is: in the global scope of the process, or in a registry that was loaded without putting its
/// names there.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !found.is_null() {
        return Some(found);
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name ends with a zero byte; nothing is loaded, so no code of the library runs.
    let library = unsafe { libc::dlopen(c"libdat2.so.2".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is there, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: opened just before; whoever loaded it still has it.
    unsafe { libc::dlclose(library) };
    (!found.is_null()).then_some(found)
}
