//! Seeds of `ops`: the scenarios of the oracle, and random runs that reach more.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::{Fault, FaultPlan, RemoteError};
use dat_oracle::{Input, Op, Prologue, Runner, Setup, scenarios};

use super::Seed;
use super::search::{LENGTH, Reached, keep, noise};

/// Returns a random run; every third has faults.
fn input(seed: u64) -> Input {
    let prologues = [Prologue::Pair, Prologue::Shared];
    let bytes = noise(seed, 2 * LENGTH);
    let mut noise = Unstructured::new(&bytes);
    let mut ops = Vec::new();
    while !noise.is_empty() {
        ops.extend(Op::arbitrary(&mut noise));
    }
    let faults = match seed % 3 {
        2 => faults(seed),
        _ => Vec::new(),
    };
    let setup = Setup {
        seed,
        non_coherent: seed.is_multiple_of(5),
        prologue: prologues[(seed % 2) as usize],
        faults: FaultPlan { faults },
    };
    Input { setup, ops }
}

/// Returns one fault of each of three kinds.
fn faults(seed: u64) -> Vec<Fault> {
    let adapter = (seed / 39 % 2) as u16;
    let queue = (seed / 78 % 5) as u32;
    let nth = (seed / 390 % 4) as u32;
    macro_rules! fault {
        ($kind:ident $($more:tt)*) => { Fault::$kind { adapter, $($more)* } };
    }
    let kind = |kind: u64| match kind % 13 {
        0 => fault!(DropCompletion queue, nth),
        1 => fault!(DelayCompletion queue, nth, by: 50),
        2 => fault!(DuplicateCompletion queue, nth),
        3 => fault!(ReorderCompletion queue, nth),
        4 => fault!(OverrunQueue queue, nth),
        5 => fault!(LoseNotification queue, nth),
        6 => Fault::LinkDown {
            a: 0,
            b: 1,
            at: 10,
            duration: None,
        },
        7 => fault!(AllocationFailure nth: nth + 12),
        8 => fault!(RefusePost nth),
        9 => fault!(RemoteError nth, error: RemoteError::Responder),
        10 => fault!(ReceiverNotReady nth, attempts: 9),
        11 => fault!(FailSharedReceive nth),
        _ => fault!(Crash at: 30),
    };
    let first = seed / 3;
    [first, first + 1, first + 5].map(kind).into()
}

/// Returns what a run reaches; `None` if it fails.
fn reached(input: &Input) -> Option<Reached> {
    let mut runner = Runner::new(&input.setup).ok()?;
    for op in input.ops() {
        runner.apply(op).ok()?;
    }
    let reached = runner.reached().clone();
    runner.finish().ok()?;
    Some(reached)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut covered = Reached::new();
    for (name, input) in scenarios::all() {
        seeds.push((name.into(), input.encode()));
        covered.extend(reached(&input).unwrap_or_default());
    }
    let run = |seed| {
        let input = input(seed);
        (input.encode(), reached(&input))
    };
    seeds.extend(keep(run, covered));
    seeds
}
