//! A RoCEv2 connection over a network that does anything: each request ends once and in order.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::roce_session::run(input));
