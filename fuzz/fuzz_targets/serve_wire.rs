//! The protocol of `dat serve` with any peer: a message is refused or is possible.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::serve_wire::run(input));
