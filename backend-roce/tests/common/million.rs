//! The long form of the tests on a bad network: a million operations.
//!
//! The conformance suite includes this file for its adapters.

use std::ops::AddAssign;

const OPERATIONS: u64 = 1_000_000;

/// Counts of recoveries from faults of the network, of both ends of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub retransmits: u64,
    pub timeouts: u64,
    pub duplicates: u64,
    pub not_ready: u64,
}

impl AddAssign for Recovery {
    fn add_assign(&mut self, other: Self) {
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
        self.duplicates += other.duplicates;
        self.not_ready += other.not_ready;
    }
}

/// Runs a million operations in `runs` runs, and prints the row of counts of `cargo xtask harden`.
///
/// `run` gets the index of the run, its seed and its number of operations. The first seed is
/// `usual_seed` unless the variable `DAT_SEED` has another one.
pub fn carry_a_million(
    between: &str,
    usual_seed: u64,
    runs: u64,
    mut run: impl FnMut(usize, u64, u64) -> Recovery,
) {
    let seed = std::env::var("DAT_SEED").map_or(usual_seed, |seed| seed.parse().expect("a seed"));
    let mut sum = Recovery::default();
    for (index, seed) in (seed..).take(runs as usize).enumerate() {
        let recovery = run(index, seed, OPERATIONS / runs);
        println!("{recovery:?}");
        sum += recovery;
    }
    let Recovery {
        retransmits,
        timeouts,
        duplicates,
        not_ready,
    } = sum;
    println!("carried|{between}|{OPERATIONS}|{retransmits}|{timeouts}|{duplicates}|{not_ready}");
}
