//! Memory of the caller that bytes move from and to.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::{EINVAL, MADV_POPULATE_READ, MADV_POPULATE_WRITE};

use super::Plain;

/// Where memory of the caller begins, or null; C says how much of it there is.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Consumer(*mut c_void);

// SAFETY: an address.
unsafe impl Plain for Consumer {}

impl Consumer {
    /// Where it begins.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `length` bytes from `offset` on, which others may change meanwhile; `None` if there can be no such memory.
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
        // SAFETY: by the promise of the C caller so much memory is there as long as the call lasts; that others may change it
        // meanwhile is what atomics are for.
        Some(unsafe { std::slice::from_raw_parts(first, length) })
    }
}

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Some of it is not there.
    None,
    /// It can be read.
    Read,
    /// It can be read and written.
    Write,
}

/// Looks what may be done with memory, and has the system provide it, as for a device. Where the system cannot tell, it may be written.
pub(crate) fn access_to(address: usize, length: usize) -> Access {
    if !system_tells() || populate(address, length, MADV_POPULATE_WRITE) == 0 {
        return Access::Write;
    }
    match populate(address, length, MADV_POPULATE_READ) {
        0 => Access::Read,
        _ => Access::None,
    }
}

/// Whether the system can be asked what may be done with memory.
fn system_tells() -> bool {
    const UNKNOWN: u8 = 2;
    static TELLS: AtomicU8 = AtomicU8::new(UNKNOWN);
    match TELLS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let here = 0_u8;
            let address = ptr::from_ref(&here).expose_provenance();
            let tells = populate(address, 1, MADV_POPULATE_READ) != EINVAL;
            TELLS.store(tells.into(), Ordering::Relaxed);
            tells
        }
        known => known != 0,
    }
}

/// Has the system provide memory as `advice` says; what it says against it, or 0.
pub(super) fn populate(address: usize, length: usize, advice: i32) -> i32 {
    let before = address % page_size();
    let Some(length) = length.checked_add(before) else {
        return EINVAL;
    };
    let first = ptr::without_provenance_mut(address.wrapping_sub(before));
    // SAFETY: the system looks at the range, provides pages for it, and changes nothing that is in it.
    match unsafe { libc::madvise(first, length, advice) } {
        0 => 0,
        _ => last_error(),
    }
}

/// What the system said of its last call on this thread.
pub(crate) fn last_error() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(EINVAL)
}

/// The page size of this host.
pub(crate) fn page_size() -> usize {
    // SAFETY: asks for a number, which the C library knows.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    size.ok().filter(|size| *size != 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMPV-E04, RSMPV-15
    #[test]
    fn memory_is_told_by_what_may_be_done_with_it() {
        static CONSTANT: [u8; 64] = [7; 64];
        let local = [0_u8; 100];
        let of = |bytes: &[u8]| access_to(bytes.as_ptr().addr(), bytes.len());
        assert_eq!(of(&local), Access::Write);
        assert_eq!(of(&CONSTANT), Access::Read);
        for (address, length) in [(0, 1), (8, 4096), (usize::MAX - 10, 5), (4096, usize::MAX)] {
            assert_eq!(access_to(address, length), Access::None);
        }
    }
}
