//! Seeds of `rsm_ops`: random runs, and for each kind of fault one in which it has an effect.

use arbitrary::{Arbitrary, Unstructured};
use dat_oracle::rsm::{Input, KINDS, Op, Runner};

use super::Seed;
use super::search::{CANDIDATES, LENGTH, Reached, keep, noise};

/// The kinds of faults, by their numbers in `rsm::fault`.
const FAULTS: [&str; KINDS as usize] = [
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

/// Returns a run without faults.
fn bytes(seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend([seed as u8, (seed / 3) as u8, 0, 0]);
    bytes.extend(noise(seed, LENGTH));
    bytes
}

/// Returns a run with one fault; operations follow until the bytes are used up.
fn bytes_with_fault(kind: u8, seed: u64) -> Vec<u8> {
    let mut bytes = seed.to_le_bytes().to_vec();
    // One fault; see `rsm::Faults`.
    let count = 129;
    let empty = u8::from(seed % 8 == 7);
    bytes.extend([seed as u8, (seed / 3) as u8, empty, count, kind]);
    let some = noise(seed, 3 + LENGTH);
    let (fault, rest) = some.split_at(3);
    bytes.extend(fault);
    let mut noise = Unstructured::new(rest);
    while !noise.is_empty() {
        let at = rest.len() - noise.len();
        let _operation = Op::arbitrary(&mut noise);
        bytes.push(1);
        bytes.extend(&rest[at..rest.len() - noise.len()]);
    }
    bytes
}

/// Returns the outcomes of a run; true if any fault had an effect; `None` if the run fails.
///
/// Outcomes are calls that succeeded, and calls that failed because of faults.
fn outcomes(bytes: &[u8]) -> Option<(Reached, bool)> {
    let input = Input::arbitrary_take_rest(Unstructured::new(bytes)).ok()?;
    let mut runner = Runner::new(&input.setup).ok()?;
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

/// Returns the run in which a kind of fault excuses most.
fn struck(kind: u8, name: &str) -> Seed {
    let candidates = (0..CANDIDATES / 3).map(|seed| bytes_with_fault(kind, seed));
    let struck = candidates.filter_map(|bytes| match outcomes(&bytes)? {
        (reached, true) => Some((reached, bytes)),
        (_, false) => None,
    });
    let best = struck.max_by_key(|(reached, _)| {
        let excused = reached.iter().filter(|call| call.contains(':'));
        (excused.count(), reached.len())
    });
    let (_, bytes) = best.unwrap_or_else(|| panic!("the fault {name} never has an effect"));
    (format!("fault-{name}"), bytes)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let run = |seed| {
        let bytes = bytes(seed);
        let reached = outcomes(&bytes).map(|(reached, _)| reached);
        (bytes, reached)
    };
    let mut seeds = keep(run, Reached::new());
    seeds.extend((0..).zip(FAULTS).map(|(kind, name)| struck(kind, name)));
    seeds
}
