//! A peer that sends anything to a RoCEv2 adapter: only granted memory is reached.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::roce_wire::run(input));
