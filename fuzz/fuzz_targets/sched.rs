//! Threads that call one adapter at a time, interleaved as the input says: their calls look as if they were done one after the other.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::sched::run(input));
