//! Bytes from the network: the decoders of RoCEv2 accept what they can say again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::roce_packet::run(input));
