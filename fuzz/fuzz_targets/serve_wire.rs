//! What the two ends of `dat serve` say to each other, from a peer that says anything: it is refused, or it is possible.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::serve_wire::run(input));
