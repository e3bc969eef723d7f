//! Consumer memory, by the addresses of the processor.
#![expect(unsafe_code, reason = "memory by its address: a room of its own")]

use core::fmt;

use backend_mmio::pvrdma::Mapping;
use backend_mmio::pvrdma::defs::PAGE;
use dat_core::memory::Region;

use super::fabric::Shared;

/// A bus that sees the processor's own addresses. Dropping it takes the device off the fabric.
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

// SAFETY: the device of this crate reaches memory through an adapter of the fabric alone, which keeps to what was registered, and
// which is dropped with the driver; where it does, it uses the addresses of the processor.
unsafe impl Mapping for Identity {
    fn page(&self, address: *const u8) -> Option<u64> {
        Some(address.expose_provenance() as u64)
    }
}

/// The memory of a region, if its pages are where this bus has them.
pub(super) fn memory(start: u64, length: u64, pages: &[u64]) -> Option<Region> {
    let first = start & !(PAGE - 1);
    let lies = |(page, number): (&u64, u64)| *page == first + number * PAGE;
    if !pages.iter().zip(0..).all(lies) {
        return None;
    }
    let base = core::ptr::with_exposed_provenance_mut(usize::try_from(start).ok()?);
    let length = usize::try_from(length).ok()?;
    // SAFETY: the driver's consumer registered this memory, whose address `Identity` exposed, and promised that it stays until the
    // registration is undone, which the driver does by a command, or until the device is gone.
    Some(unsafe { Region::from_raw_parts(base, length) })
}
