//! A device that writes anything, in both layouts: nothing panics, hangs, is lost or touched that was not registered.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::device::run(input));
