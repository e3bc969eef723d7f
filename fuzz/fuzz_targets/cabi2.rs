//! The C library for DAT 2.0 with any arguments: no panic, hang or stray write.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::cabi::v2::run(input));
