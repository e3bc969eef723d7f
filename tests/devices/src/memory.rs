//! Memory that driver and device share.

use alloc::alloc::{alloc_zeroed, handle_alloc_error};
use core::alloc::Layout;

use backend_mmio::{DeviceUnit, DmaMemory, DmaView};

/// Bus address of the first byte of a device's memory.
const BUS: u64 = 0x4000_0000;

/// Allocates memory for one device, which is never freed.
///
/// The length is `bytes`, rounded down to units, and at least one unit.
///
/// The system provides zeroed pages, which cost nothing until they are used.
pub(crate) fn shared(bytes: usize) -> DmaView<'static> {
    let units = (bytes / size_of::<DeviceUnit>()).max(1);
    let layout = Layout::array::<DeviceUnit>(units).expect("the layout fits the address space");
    // SAFETY: the layout has at least one unit.
    #[expect(unsafe_code, reason = "zeros become units of a device")]
    let zeros = unsafe { alloc_zeroed(layout) };
    if zeros.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: `zeros` points to `units` units, aligned, and every bit pattern is valid. They are
    // never freed, and nothing else uses them.
    #[expect(unsafe_code, reason = "zeros become units of a device")]
    let words = unsafe { core::slice::from_raw_parts(zeros.cast::<DeviceUnit>(), units) };
    DmaView::new(words, BUS)
}

/// Returns the driver's access to the device's memory. Called once per device.
pub(crate) fn dma_memory(view: DmaView<'static>) -> DmaMemory<'static> {
    // SAFETY: the device belongs to this crate, reaches the memory only through its view, and has
    // one driver. The memory is never freed. The next device gets it after this one is dropped.
    #[expect(unsafe_code, reason = "the device belongs to this crate")]
    unsafe {
        DmaMemory::new(view.units(), view.bus())
    }
}
