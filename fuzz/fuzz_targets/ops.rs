//! Operations over all calls on two adapters of a mock fabric, compared with the reference model.
//!
//! The input holds the setup (seed, coherence, prologue, fault plan) and the operations. With an empty fault plan every return,
//! state, event and byte is compared; with faults the invariants are checked.

#![no_main]

use arbitrary::Arbitrary;
use dat_model::{Op, Setup, run};
use libfuzzer_sys::fuzz_target;

/// More operations only make a finding harder to read.
const MOST_OPS: usize = 200;

#[derive(Arbitrary, Debug)]
struct Input {
    setup: Setup,
    ops: Vec<Op>,
}

fuzz_target!(|input: Input| {
    let ops = &input.ops[..input.ops.len().min(MOST_OPS)];
    if let Err(mismatch) = run(&input.setup, ops) {
        panic!("{mismatch}\n{:?}\n{ops:#?}", input.setup);
    }
});
