//! A device that writes anything, in both layouts, under the mmio driver.
//!
//! Nothing panics, hangs or is lost, and no unregistered memory is accessed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::device::run(input));
