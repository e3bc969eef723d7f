//! A peer that sends anything to the connection manager of the mmio driver.
//!
//! Nothing panics, hangs, is lost or is disclosed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::cm_wire::run(input));
