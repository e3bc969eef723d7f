//! Memory of the consumer that is to be registered.

use std::ptr;

use dat_core::flags::LMR_COOKIE_SIZE;
use dat_core::memory::Region;
use dat_core::{Error, Result};

use crate::handles::CHandle;

/// What a region is made of; which of the three it is, the memory type of the call says.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RegionDescription {
    /// An address, or the handle of a region.
    first: usize,
    /// The cookie of shared memory.
    second: *const [u8; LMR_COOKIE_SIZE],
}

impl RegionDescription {
    /// The first byte.
    pub(crate) const fn address(self) -> usize {
        self.first
    }

    /// The region it is made of.
    pub(crate) const fn handle(self) -> CHandle {
        CHandle::from_address(self.first)
    }

    /// The cookie.
    ///
    /// # Errors
    /// INVALID_PARAMETER (ARG3) if the pointer is null.
    pub(crate) fn cookie(self) -> Result<[u8; LMR_COOKIE_SIZE]> {
        if self.second.is_null() {
            return Err(Error::invalid_argument(3));
        }
        // SAFETY: it is not null, so by the promise of the C caller a cookie is there.
        Ok(unsafe { self.second.read_unaligned() })
    }
}

/// Memory that the consumer registers.
pub(crate) fn region(address: usize, length: usize) -> Region {
    let base = ptr::with_exposed_provenance_mut(address);
    // SAFETY: whoever registers memory promises by the interface that it stays as long as the region, and that device and peers may
    // access it as the privileges say. Nothing here reads or writes it otherwise.
    unsafe { Region::from_raw_parts(base, length) }
}
