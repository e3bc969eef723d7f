//! A peer that writes anything into the queues that it shares with an adapter of its host.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::roce_queue::run(input));
