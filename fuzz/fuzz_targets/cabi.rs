//! The C library for DAT 1.2 with any arguments: no panic, hang or stray write.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::cabi::v1::run(input));
