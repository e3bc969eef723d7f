//! A peer that says anything to the connection management of raw adapters: nothing panics, hangs, is lost or given away.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::sideband_wire::run(input));
