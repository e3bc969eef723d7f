//! Memory of the consumer to be registered.

use std::ptr;

use dat_core::flags::LMR_COOKIE_SIZE;
use dat_core::memory::Region;
use dat_core::{Error, Result};

use crate::handles::CHandle;

/// Description of a region's memory; the memory type of the call selects one of three forms.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RegionDescription {
    /// An address, or the handle of a region.
    first: usize,
    /// Address of the cookie of shared memory.
    second: *const [u8; LMR_COOKIE_SIZE],
}

impl RegionDescription {
    /// Returns the first address.
    pub(crate) const fn address(self) -> usize {
        self.first
    }

    /// Returns the handle of the region that the new one shares memory with.
    pub(crate) const fn handle(self) -> CHandle {
        CHandle::from_address(self.first)
    }

    /// Reads the cookie.
    ///
    /// # Errors
    /// INVALID_PARAMETER (ARG3): the pointer is null.
    pub(crate) fn cookie(self) -> Result<[u8; LMR_COOKIE_SIZE]> {
        if self.second.is_null() {
            return Err(Error::invalid_argument(3));
        }
        // SAFETY: the pointer is not null, so the C caller promises that it points to a cookie.
        Ok(unsafe { self.second.read_unaligned() })
    }
}

/// Returns memory that the consumer registers.
pub(crate) fn region(address: usize, length: usize) -> Region {
    let base = ptr::with_exposed_provenance_mut(address);
    // SAFETY: by the interface, a consumer that registers memory promises that it stays as long as
    // the region. Device and peers may access it as the privileges say. No other code of the
    // library reads or writes it.
    unsafe { Region::from_raw_parts(base, length) }
}
