//! Threads on one adapter, interleaved by the input: their calls appear sequential.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::sched::run(input));
