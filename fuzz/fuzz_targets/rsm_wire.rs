//! A peer that sends anything to the engine of RSM: it can do no harm.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::rsm_wire::run(input));
