//! Generates seeds for the fuzz targets `ops` and `rsm_ops`: `seed-corpus fuzz/seeds`.
//!
//! Seeds of `ops` are the scenarios of this crate, and random runs that reach more. Seeds of
//! `rsm_ops` are random runs without faults, and for each kind of fault one run in which it has an
//! effect.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs, io};

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::{Fault, FaultPlan, RemoteError};
use dat_model::{Input, Op, Prologue, Runner, Setup, rsm, scenarios};

/// Number of inputs to choose from, and the most to keep.
const CANDIDATES: u64 = 600;
const KEPT: usize = 24;
/// Length of the bytes that operations are decoded from.
const LENGTH: usize = 480;

/// Returns a run for a seed; every third has faults.
///
/// Operations come from a linear congruential generator.
fn input(seed: u64) -> Input {
    let prologues = [Prologue::Pair, Prologue::Shared];
    let bytes: Vec<u8> = noise(seed).take(2 * LENGTH).collect();
    let mut noise = Unstructured::new(&bytes);
    let mut ops = Vec::new();
    while !noise.is_empty() {
        ops.extend(Op::arbitrary(&mut noise));
    }
    let setup = Setup {
        seed,
        non_coherent: seed.is_multiple_of(5),
        prologue: prologues[(seed % 2) as usize],
        faults: FaultPlan {
            faults: if seed % 3 == 2 {
                faults(seed)
            } else {
                Vec::new()
            },
        },
    };
    Input { setup, ops }
}

/// Returns one fault of each of three kinds.
fn faults(seed: u64) -> Vec<Fault> {
    let adapter = (seed / 39 % 2) as u16;
    let queue = (seed / 78 % 5) as u16;
    let nth = (seed / 390 % 4) as u32;
    let kind = |kind: u64| match kind % 13 {
        0 => Fault::DropCompletion {
            adapter,
            queue,
            nth,
        },
        1 => Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 50,
        },
        2 => Fault::DuplicateCompletion {
            adapter,
            queue,
            nth,
        },
        3 => Fault::ReorderCompletion {
            adapter,
            queue,
            nth,
        },
        4 => Fault::OverrunQueue {
            adapter,
            queue,
            nth,
        },
        5 => Fault::LoseNotification {
            adapter,
            queue,
            nth,
        },
        6 => Fault::LinkDown {
            a: 0,
            b: 1,
            at: 10,
            duration: None,
        },
        7 => Fault::AllocationFailure {
            adapter,
            nth: nth + 12,
        },
        8 => Fault::RefusePost { adapter, nth },
        9 => Fault::RemoteError {
            adapter,
            nth,
            error: RemoteError::Responder,
        },
        10 => Fault::ReceiverNotReady {
            adapter,
            nth,
            attempts: 9,
        },
        11 => Fault::FailSharedReceive { adapter, nth },
        _ => Fault::Crash { adapter, at: 30 },
    };
    let first = seed / 3;
    [first, first + 1, first + 5].map(kind).into()
}

fn rsm_bytes(seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend([seed as u8, (seed / 3) as u8, 0, 0]);
    bytes.extend(noise(seed).take(LENGTH));
    bytes
}

/// Names of the kinds of faults, by their numbers in `rsm::fault`.
const RSM_FAULTS: [&str; rsm::KINDS as usize] = [
    "completion-dropped",
    "completion-late",
    "completion-twice",
    "completion-out-of-order",
    "queue-overrun",
    "notification-lost",
    "link-down",
    "nothing-left",
    "post-refused",
    "answer",
    "no-buffer",
    "host-dead",
];

/// Encodes a run with one fault; operations follow until the bytes are used up.
fn rsm_bytes_with_fault(kind: u8, seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    // One fault; see `rsm::Faults`.
    let count = 129;
    let empty = u8::from(seed % 8 == 7);
    bytes.extend([seed as u8, (seed / 3) as u8, empty, count, kind]);
    let some: Vec<u8> = noise(seed).take(3 + LENGTH).collect();
    let (fault, rest) = some.split_at(3);
    bytes.extend(fault);
    let mut noise = Unstructured::new(rest);
    while !noise.is_empty() {
        let at = rest.len() - noise.len();
        let _operation = rsm::Op::arbitrary(&mut noise);
        bytes.push(1);
        bytes.extend(&rest[at..rest.len() - noise.len()]);
    }
    bytes
}

/// Writes the run with the most effects for each kind of fault.
fn keep_faults(folder: &Path) -> io::Result<()> {
    for (kind, name) in (0..).zip(RSM_FAULTS) {
        let candidates = (0..CANDIDATES / 3).map(|seed| rsm_bytes_with_fault(kind, seed));
        let struck = candidates.filter_map(|bytes| Some((rsm_outcomes(&bytes)?, bytes)));
        let best = struck
            .filter(|((_, happened), _)| *happened)
            .max_by_key(|((does, _), _)| {
                let excused = does.iter().filter(|call| call.contains(':'));
                (excused.count(), does.len())
            });
        let ((does, _), bytes) = best.ok_or_else(|| {
            io::Error::other(format!("no run in which the fault {name} has an effect"))
        })?;
        println!("fault-{name}: {does:?}");
        fs::write(folder.join(format!("fault-{name}")), bytes)?;
    }
    Ok(())
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// Returns the tags that a run reaches, or none if it fails.
fn reached(input: &Input) -> BTreeSet<String> {
    let Ok(mut runner) = Runner::new(&input.setup) else {
        return BTreeSet::new();
    };
    for op in input.ops() {
        if runner.apply(op).is_err() {
            return BTreeSet::new();
        }
    }
    let reached = runner.reached().clone();
    match runner.finish() {
        Ok(()) => reached,
        Err(_) => BTreeSet::new(),
    }
}

/// Returns the outcomes of a run; true if any fault had an effect.
///
/// Outcomes are calls that succeeded and calls that failed because of faults. `None` if the run
/// fails.
fn rsm_outcomes(bytes: &[u8]) -> Option<(BTreeSet<String>, bool)> {
    let input = rsm::Input::arbitrary_take_rest(Unstructured::new(bytes)).ok()?;
    let mut runner = rsm::Runner::new(&input.setup).ok()?;
    for op in input.ops() {
        runner.apply(op).ok()?;
    }
    let tally = runner.tally().iter();
    let outcomes = tally
        .filter(|(call, counts)| counts[0] > 0 || call.contains(':'))
        .map(|(call, _)| call.clone())
        .collect();
    let happened = !runner.happened().is_empty();
    runner.finish().ok()?;
    Some((outcomes, happened))
}

/// A candidate: its seed, its bytes and its outcomes.
type Candidate = (u64, Vec<u8>, BTreeSet<String>);

/// Writes the candidates that add most to those already kept.
fn keep(
    folder: &Path,
    mut candidates: Vec<Candidate>,
    mut covered: BTreeSet<String>,
) -> io::Result<()> {
    let mut kept = 0;
    while kept < KEPT {
        candidates.sort_by_key(|(_, _, does)| (does.difference(&covered).count(), does.len()));
        let Some((seed, bytes, does)) = candidates.pop() else {
            break;
        };
        if does.is_subset(&covered) {
            break;
        }
        fs::write(folder.join(format!("run-{seed:03}")), bytes)?;
        covered.extend(does);
        kept += 1;
    }
    println!(
        "{}: {kept} runs, {} things",
        folder.display(),
        covered.len()
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).unwrap_or_else(|| "fuzz/seeds".into());
    let ops = Path::new(&folder).join("ops");
    let rsm_ops = Path::new(&folder).join("rsm_ops");
    for folder in [&ops, &rsm_ops] {
        if folder.is_dir() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    let mut covered = BTreeSet::new();
    for (name, input) in scenarios::all() {
        fs::write(ops.join(name), input.encode())?;
        covered.extend(reached(&input));
    }
    let candidates = (0..CANDIDATES).map(|seed| {
        let input = input(seed);
        (seed, input.encode(), reached(&input))
    });
    keep(&ops, candidates.collect(), covered)?;
    let candidates = (0..CANDIDATES).map(|seed| {
        let bytes = rsm_bytes(seed);
        let does = rsm_outcomes(&bytes).map(|(does, _)| does);
        (seed, bytes, does.unwrap_or_default())
    });
    keep(&rsm_ops, candidates.collect(), BTreeSet::new())?;
    keep_faults(&rsm_ops)
}
