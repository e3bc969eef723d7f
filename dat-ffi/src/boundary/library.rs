//! Shared libraries that are loaded at run time, and environment variables that name them.

use std::env;
use std::ffi::{CStr, OsString, c_void};
use std::ptr::NonNull;

/// A library that stays loaded as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library(NonNull<c_void>);

// SAFETY: it is a handle of the loader, which locks its own work.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The address of a symbol in a library that stays loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol(NonNull<c_void>);

// SAFETY: it is an address; code that uses it as a pointer is responsible for that.
unsafe impl Send for Symbol {}
// SAFETY: as above.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// Returns the address.
    pub const fn pointer(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Library {
    /// Loads a library and its dependencies into the global scope; a loaded library is only found.
    ///
    /// # Errors
    /// The loader's message, if the library cannot be loaded.
    pub fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name ends with a zero byte. The author of the name is responsible for the
        // code that the library runs when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: it is null, or text that stays until this thread calls the loader again.
            let text = unsafe {
                let text = libc::dlerror();
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            };
            text.unwrap_or_else(|| "the loader gives no reason".into())
        })
    }

    /// Returns the library that contains this code; `None` if a program contains it.
    pub(crate) fn of_this_code() -> Option<Self> {
        static HERE: u8 = 0;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `found` has room for the answer, and all its bits may be zero.
        let name = unsafe {
            libc::dladdr((&raw const HERE).cast(), found.as_mut_ptr());
            found.assume_init().dli_fname
        };
        if name.is_null() {
            return None;
        }
        // SAFETY: it is the loader's own name of the library. The library is loaded, so no code of
        // it runs.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(Self)
    }

    /// Returns the symbol with this name in the library.
    pub fn find(self, name: &CStr) -> Option<Symbol> {
        // SAFETY: the library is loaded and stays so; the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(found).map(Symbol)
    }
}

/// Returns an environment variable; `None` in a process with more privileges than its starter.
pub(crate) fn trusted_variable(name: &str) -> Option<OsString> {
    // SAFETY: the call only reads a value that the kernel gave the process at its start.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    env::var_os(name).filter(|_| !is_privileged)
}
