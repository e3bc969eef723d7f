//! Texts of the files that a user writes: they are read or refused, and nothing else.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::config::run(input));
