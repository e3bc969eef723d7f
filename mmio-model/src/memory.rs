//! Memory that driver and device share.

use backend_mmio::{DeviceWord, DmaMemory};

/// Where devices see the first byte of their memory.
const BUS: u64 = 0x4000_0000;

/// Memory of so many bytes for a device of its own, for ever.
///
/// It is taken from the system as zeros, which costs nothing until they are used.
pub(crate) fn shared(bytes: usize) -> DmaMemory<'static> {
    let units = bytes / 16;
    let zeros: &'static mut [[u32; 4]] = Vec::leak(vec![[0; 4]; units]);
    let first = zeros.as_mut_ptr().cast::<[DeviceWord; 4]>();
    // SAFETY: a `DeviceWord` is a word in which all bits may be anything, and has the size and the alignment of one. The
    // slice was leaked, so it stays, and nobody else has it.
    #[expect(unsafe_code, reason = "words of zeros become words of a device")]
    let words = unsafe { core::slice::from_raw_parts(first, units) };
    // SAFETY: the device is the one of this crate, which reaches the memory through this view alone.
    #[expect(unsafe_code, reason = "the device is this crate's own")]
    unsafe {
        DmaMemory::new(words, BUS)
    }
}
