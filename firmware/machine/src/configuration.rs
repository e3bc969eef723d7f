//! Configuration space in memory: a page for each function (ECAM).
#![expect(
    unsafe_code,
    reason = "registers at addresses that the machine defines; only in this module"
)]

use core::ptr::with_exposed_provenance_mut;

use crate::processor::CONFIGURATION;

fn word(function: u8, offset: u8) -> *mut u32 {
    with_exposed_provenance_mut(CONFIGURATION | usize::from(function) << 12 | usize::from(offset))
}

/// Reads a word of the configuration space of a function on the first bus.
pub(crate) fn read_configuration(function: u8, offset: u8) -> u32 {
    // SAFETY: the machine has the configuration of 256 functions there, present or not, and Rust
    // uses no memory there.
    unsafe { word(function, offset).read_volatile() }
}

/// Writes a word of the configuration space of a function on the first bus.
pub(crate) fn write_configuration(function: u8, offset: u8, value: u32) {
    // SAFETY: as above; windows of devices go to addresses that Rust does not use.
    unsafe { word(function, offset).write_volatile(value) }
}
