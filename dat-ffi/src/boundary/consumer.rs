//! Memory of the caller that bytes are copied from and to.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::{EINVAL, MADV_NOHUGEPAGE, MADV_POPULATE_READ, MADV_POPULATE_WRITE};

use super::{Pages, Plain};

/// Start of memory of the caller, or null; the call says how much there is.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Consumer(*mut c_void);

// SAFETY: it is an address.
unsafe impl Plain for Consumer {}

impl Consumer {
    /// Returns the first address.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns `length` bytes from `offset` on, which other threads may change meanwhile.
    ///
    /// `None` if such memory cannot exist.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Option<&[AtomicU8]> {
        if length == 0 {
            return Some(&[]);
        }
        let start = self.address().checked_add(offset)?;
        start.checked_add(length)?;
        if self.is_null() || isize::try_from(length).is_err() {
            return None;
        }
        let first = self.0.wrapping_byte_add(offset).cast::<AtomicU8>();
        // SAFETY: the C caller promises this much memory as long as the call lasts. Other threads
        // may change it meanwhile, which atomics allow.
        Some(unsafe { std::slice::from_raw_parts(first, length) })
    }
}

/// Access to a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Some of the range is not accessible.
    None,
    /// The range can be read.
    Read,
    /// The range can be read and written.
    Write,
}

/// Returns the access to memory; has the system provide its pages, as for a device.
///
/// Returns `Write` if the system cannot tell.
pub(crate) fn access_to(address: usize, length: usize) -> Access {
    [Access::Write, Access::Read]
        .into_iter()
        .find(|access| has_access(address, length, *access))
        .unwrap_or(Access::None)
}

/// Returns true if memory allows an access, or if the system cannot tell.
///
/// Has the system provide the pages, as for a device.
pub(crate) fn has_access(address: usize, length: usize, needed: Access) -> bool {
    Pages::of(address, length).is_some_and(|pages| pages.allow(needed))
}

/// Returns the advice that fails if memory does not allow the access.
pub(super) const fn advice_for(needed: Access) -> i32 {
    match needed {
        Access::Write => MADV_POPULATE_WRITE,
        Access::Read | Access::None => MADV_POPULATE_READ,
    }
}

/// Returns true if the system knows the advice that `access_to` uses.
pub(super) fn system_tells() -> bool {
    const UNKNOWN: u8 = 2;
    static TELLS: AtomicU8 = AtomicU8::new(UNKNOWN);
    match TELLS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let here = 0_u8;
            let address = ptr::from_ref(&here).expose_provenance();
            let tells = advise(address, 1, MADV_POPULATE_READ) != EINVAL;
            TELLS.store(tells.into(), Ordering::Relaxed);
            tells
        }
        known => known != 0,
    }
}

/// Advises the system about the pages of a range; returns its error number, or 0.
///
/// The advice changes no contents.
pub(super) fn advise(address: usize, length: usize, advice: i32) -> i32 {
    let before = address % page_size();
    let Some(length) = length.checked_add(before) else {
        return EINVAL;
    };
    let first = ptr::without_provenance_mut(address.wrapping_sub(before));
    #[cfg(test)]
    count_call();
    // SAFETY: the system checks the range; such advice changes no contents.
    match unsafe { libc::madvise(first, length, advice) } {
        0 => 0,
        _ => last_error(),
    }
}

#[cfg(test)]
std::thread_local! {
    /// Number of system calls about memory that this thread has made.
    static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(super) fn count_call() {
    CALLS.set(CALLS.get() + 1);
}

#[cfg(test)]
pub(super) fn calls() -> u32 {
    CALLS.get()
}

/// Has the system provide a table with few used entries by small pages.
///
/// Large pages would be provided, and cleared, for a few entries each.
pub(crate) fn keep_small<T>(table: &'static [T]) {
    // If it fails, only speed and memory are lost.
    let _failed = advise(table.as_ptr().addr(), size_of_val(table), MADV_NOHUGEPAGE);
}

/// Returns the error number of this thread's last system call.
pub(crate) fn last_error() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(EINVAL)
}

/// Returns the page size of this host.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call returns a number that the C library knows.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    size.ok().filter(|size| *size != 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMPV-E04, RSMPV-15
    #[test]
    fn memory_is_classified_by_its_permissions() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let of = |bytes: &[u8]| access_to(bytes.as_ptr().addr(), bytes.len());
        assert_eq!(of(&local), Access::Write);
        assert_eq!(of(&CONSTANT), Access::Read);
        for (address, length) in [(0, 1), (8, 4096), (usize::MAX - 10, 5), (4096, usize::MAX)] {
            assert_eq!(access_to(address, length), Access::None);
            assert!(!has_access(address, length, Access::Read));
        }
        assert!(has_access(8, 0, Access::Write), "no byte is needed");
    }
}
