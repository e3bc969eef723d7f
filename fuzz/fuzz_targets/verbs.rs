//! A device and a connection manager that lie to the verbs backend.
//!
//! Nothing panics, hangs or is lost, and only checked requests are posted.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::verbs::run(input));
