//! Memory that driver and device share.

use alloc::alloc::{alloc_zeroed, handle_alloc_error};
use core::alloc::Layout;

use backend_mmio::{DeviceUnit, DmaMemory, DmaView};

/// Where devices see the first byte of their memory.
const BUS: u64 = 0x4000_0000;

/// Memory of so many bytes for a device of its own, for ever.
///
/// It is taken from the system as zeros, which costs nothing until they are used.
pub(crate) fn shared(bytes: usize) -> DmaView<'static> {
    let units = (bytes / size_of::<DeviceUnit>()).max(1);
    let layout = Layout::array::<DeviceUnit>(units).expect("memory that there can be");
    // SAFETY: the layout is of at least one unit.
    #[expect(unsafe_code, reason = "zeros become units of a device")]
    let zeros = unsafe { alloc_zeroed(layout) };
    if zeros.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: there are so many units, aligned as they are, in which all bits may be anything. They are never freed, and
    // nobody else has them.
    #[expect(unsafe_code, reason = "zeros become units of a device")]
    let words = unsafe { core::slice::from_raw_parts(zeros.cast::<DeviceUnit>(), units) };
    DmaView::new(words, BUS)
}

/// The same memory, for the driver of the device that has the view. Once for each device.
pub(crate) fn of_driver(view: DmaView<'static>) -> DmaMemory<'static> {
    // SAFETY: the device is the one of this crate, which reaches the memory through its view alone, and has one driver; the
    // memory is never freed. The next device gets it when this one is gone.
    #[expect(unsafe_code, reason = "the device is this crate's own")]
    unsafe {
        DmaMemory::new(view.units(), view.bus())
    }
}
