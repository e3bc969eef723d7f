//! The texts of users' configuration files: each is either read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::config::run(input));
