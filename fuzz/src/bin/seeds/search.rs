//! Random runs, and the choice of those that reach most.

use std::collections::BTreeSet;

use super::Seed;

/// The number of runs to choose from, and the most to keep.
pub(crate) const CANDIDATES: u64 = 600;
const KEPT: usize = 24;
/// The bytes that operations are decoded from.
pub(crate) const LENGTH: usize = 480;

/// Names of the places that a run reaches.
pub(crate) type Reached = BTreeSet<String>;

/// Returns random bytes of a linear congruential generator.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

/// Returns the runs that add most to what others reach.
///
/// `run` returns the bytes of a run and what it reaches, nothing if it fails.
pub(crate) fn keep(
    run: impl Fn(u64) -> (Vec<u8>, Option<Reached>),
    mut covered: Reached,
) -> Vec<Seed> {
    let candidate = |seed| {
        let (bytes, reached) = run(seed);
        (seed, bytes, reached.unwrap_or_default())
    };
    let mut candidates: Vec<_> = (0..CANDIDATES).map(candidate).collect();
    let mut kept = Vec::new();
    while kept.len() < KEPT {
        candidates
            .sort_by_key(|(_, _, reached)| (reached.difference(&covered).count(), reached.len()));
        match candidates.pop() {
            Some((seed, bytes, reached)) if !reached.is_subset(&covered) => {
                kept.push((format!("run-{seed:03}"), bytes));
                covered.extend(reached);
            }
            _ => break,
        }
    }
    kept
}
