//! Operations of RSM on two engines of a mock fabric, compared with the oracle.
//!
//! The input holds the setup (seed, identities of the processes, default rights, faults) and the
//! operations. Every return, residual, state, signal and byte is compared, except for those that an
//! effective fault excuses.

#![no_main]

use dat_oracle::rsm::{Input, shrink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| {
    if let Err(mismatch) = input.run() {
        let ops = shrink(&input.setup, input.ops());
        panic!("{mismatch}\n{:?}\n{ops:#?}", input.setup);
    }
});
