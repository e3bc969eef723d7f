//! Operations of all calls on two adapters of a mock fabric, compared with the oracle.
//!
//! The input holds the setup (seed, coherence, prologue, fault plan) and the operations. With an
//! empty fault plan every return, state, event and byte is compared; with faults the invariants are
//! checked.

#![no_main]

use dat_oracle::{Input, shrink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| {
    if let Err(mismatch) = input.run() {
        let ops = shrink(&input.setup, input.ops());
        panic!("{mismatch}\n{:?}\n{ops:#?}", input.setup);
    }
});
