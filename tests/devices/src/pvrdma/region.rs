//! Consumer memory by the processor's addresses.
#![expect(
    unsafe_code,
    reason = "turns addresses into memory; only this module does"
)]

use core::fmt;

use backend_mmio::defs::pvrdma::PAGE;
use backend_mmio::pvrdma::Mapping;
use dat_core::memory::Region;

use super::fabric::Shared;

/// Bus with the processor's own addresses; drop removes the device from the fabric.
pub struct Identity {
    pub(super) shared: Shared,
    pub(super) device: usize,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bus of device {}", self.device)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.shared.enter().remove(self.device);
    }
}

// SAFETY: the device belongs to this crate and reaches memory only through an adapter of the
// fabric. The adapter stays within registered regions, and is dropped with the driver. It uses the
// processor's addresses.
unsafe impl Mapping for Identity {
    fn page(&self, address: *const u8) -> Option<u64> {
        Some(address.expose_provenance() as u64)
    }
}

/// Returns the memory of a region if its pages match this bus.
pub(super) fn memory(start: u64, length: u64, pages: &[u64]) -> Option<Region> {
    let first = start & !(PAGE - 1);
    let is_at_its_address = |(page, number): (&u64, u64)| *page == first + number * PAGE;
    if !pages.iter().zip(0..).all(is_at_its_address) {
        return None;
    }
    let base = core::ptr::with_exposed_provenance_mut(usize::try_from(start).ok()?);
    let length = usize::try_from(length).ok()?;
    // SAFETY: the driver's consumer registered this memory, and `Identity` exposed its address. The
    // consumer promised that it stays until the registration ends, which a command of the driver
    // does, or until the device is gone.
    Some(unsafe { Region::from_raw_parts(base, length) })
}
