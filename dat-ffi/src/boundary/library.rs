//! Shared libraries that are loaded while the process runs, and the environment that says which.

use std::env;
use std::ffi::{CStr, OsString, c_void};
use std::ptr::NonNull;

/// A library that stays loaded as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle of the loader, which locks what it does.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The address of something in a library that stays loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol(NonNull<c_void>);

// SAFETY: an address; whoever makes something of it answers for that.
unsafe impl Send for Symbol {}
// SAFETY: as above.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// The address.
    pub const fn pointer(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Library {
    /// Loads a library, with everything that it needs, into the scope of all others; nothing happens if it is loaded.
    ///
    /// # Errors
    /// It cannot be loaded: what the loader says.
    pub fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name ends with a zero byte. What the library does when it is loaded is up to whoever named it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: it is null, or text that stays until this thread asks the loader for something else.
            let said = unsafe {
                let said = libc::dlerror();
                (!said.is_null()).then(|| CStr::from_ptr(said).to_string_lossy().into_owned())
            };
            said.unwrap_or_else(|| "the loader does not say why".into())
        })
    }

    /// The library that this code is in; `None` if it is in a program.
    pub(crate) fn of_this_code() -> Option<Self> {
        static HERE: u8 = 0;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: there is room for the answer, all of whose bits may be zero.
        let name = unsafe {
            libc::dladdr((&raw const HERE).cast(), found.as_mut_ptr());
            found.assume_init().dli_fname
        };
        if name.is_null() {
            return None;
        }
        // SAFETY: the loader's own name of the library; it is loaded, so that no code of it runs.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(Self)
    }

    /// Where something of this name is in the library.
    pub fn find(self, name: &CStr) -> Option<Symbol> {
        // SAFETY: the library is loaded and stays so; the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(found).map(Symbol)
    }
}

/// A variable of the environment, but none in a process that has more privileges than whoever started it.
pub(crate) fn trusted_variable(name: &str) -> Option<OsString> {
    // SAFETY: it only reads what the kernel told the process when it began.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    env::var_os(name).filter(|_| !is_privileged)
}
