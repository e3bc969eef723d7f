//! Operations of remote shared memory on two engines of a mock fabric, compared with the reference model.
//!
//! The input holds the setup (seed, who the processes are, default rights, faults) and the operations. Every return, residual,
//! state, signal and byte is compared, but for what a fault that had an effect excuses.

#![no_main]

use dat_model::rsm::{Input, shrink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| {
    if let Err(mismatch) = input.run() {
        let ops = shrink(&input.setup, input.ops());
        panic!("{mismatch}\n{:?}\n{ops:#?}", input.setup);
    }
});
