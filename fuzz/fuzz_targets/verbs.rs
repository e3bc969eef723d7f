//! A device and a connection manager that lie to the backend for RDMA devices: nothing panics, hangs, is lost or posted that was not checked.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| dat_fuzz::verbs::run(input));
