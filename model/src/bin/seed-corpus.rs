//! Writes inputs for the fuzz targets `ops` and `rsm_ops` that get far, into the folder given: `seed-corpus fuzz/seeds`.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs, io};

use arbitrary::{Arbitrary, Unstructured};
use dat_model::{Input, Runner, Tally, rsm};

/// Inputs to choose from, and how many to keep.
const CANDIDATES: u64 = 600;
const KEPT: usize = 24;
const LENGTH: usize = 480;

/// The bytes of a run without faults: the fields of its setup, then operations from a linear congruential generator.
fn bytes(seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.push(u8::from(seed.is_multiple_of(3)));
    let prologue: u32 = if seed.is_multiple_of(2) {
        0x8000_0000
    } else {
        0xF000_0000
    };
    bytes.extend(prologue.to_le_bytes());
    bytes.push(0);
    bytes.extend(noise(seed));
    bytes
}

/// The same for remote shared memory.
fn rsm_bytes(seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend([seed as u8, (seed / 3) as u8, 0]);
    bytes.extend(noise(seed));
    bytes
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(LENGTH)
}

/// The calls that succeed in a run.
fn successes(bytes: &[u8]) -> BTreeSet<String> {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return BTreeSet::new();
    };
    let Ok(mut runner) = Runner::new(&input.setup) else {
        return BTreeSet::new();
    };
    for op in input.ops() {
        if runner.apply(op).is_err() {
            break;
        }
    }
    done(runner.tally())
}

fn rsm_successes(bytes: &[u8]) -> BTreeSet<String> {
    let Ok(input) = rsm::Input::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return BTreeSet::new();
    };
    let Ok(mut runner) = rsm::Runner::new(&input.setup) else {
        return BTreeSet::new();
    };
    for op in input.ops() {
        if runner.apply(op).is_err() {
            break;
        }
    }
    done(runner.tally())
}

fn done(tally: &Tally) -> BTreeSet<String> {
    tally
        .iter()
        .filter(|(_, counts)| counts[0] > 0)
        .map(|(call, _)| call.clone())
        .collect()
}

fn write(
    folder: &Path,
    bytes: fn(u64) -> Vec<u8>,
    successes: fn(&[u8]) -> BTreeSet<String>,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut candidates: Vec<_> = (0..CANDIDATES)
        .map(|seed| {
            let bytes = bytes(seed);
            let calls = successes(&bytes);
            (seed, bytes, calls)
        })
        .collect();
    let mut covered = BTreeSet::new();
    for _ in 0..KEPT {
        // The one with the most calls that no kept one succeeds with; then with the most calls.
        candidates.sort_by_key(|(_, _, calls)| (calls.difference(&covered).count(), calls.len()));
        if let Some((seed, bytes, calls)) = candidates.pop() {
            fs::write(folder.join(format!("run-{seed:03}")), bytes)?;
            covered.extend(calls);
        }
    }
    println!(
        "{}: {KEPT} runs in which {} calls succeed",
        folder.display(),
        covered.len()
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).unwrap_or_else(|| "fuzz/seeds".into());
    let folder = Path::new(&folder);
    write(&folder.join("ops"), bytes, successes)?;
    write(&folder.join("rsm_ops"), rsm_bytes, rsm_successes)
}
