//! Coverage of random runs: they must reach every call and every outcome.

use arbitrary::{Arbitrary, Unstructured};
use dat_oracle::{Op, Prologue, Runner, Setup, Tally, shrink};
use random_runs::bytes;
use sum::add;

mod random_runs;
#[path = "random_runs/sum.rs"]
mod sum;

/// Spec: GEN-06
#[test]
fn every_call_succeeds_and_is_refused_somewhere() {
    let mut total = Tally::new();
    for seed in 0..300 {
        let prologues = [
            Prologue::Pair,
            Prologue::Shared,
            Prologue::Pair,
            Prologue::Empty,
        ];
        let setup = Setup {
            seed,
            non_coherent: seed % 3 == 0,
            prologue: prologues[seed as usize % 4],
            ..Setup::default()
        };
        let bytes = bytes(seed, 2400);
        let mut input = Unstructured::new(&bytes);
        let mut ops = Vec::new();
        let mut runner = Runner::new(&setup).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        while !input.is_empty() {
            let Ok(op) = Op::arbitrary(&mut input) else {
                break;
            };
            ops.push(op.clone());
            if let Err(mismatch) = runner.apply(&op) {
                panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(&setup, &ops));
            }
        }
        add(&mut total, runner.tally());
        runner.finish().unwrap_or_else(|mismatch| {
            panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(&setup, &ops))
        });
    }
    for (name, input) in dat_oracle::scenarios::all() {
        let mut runner = Runner::new(&input.setup).unwrap_or_else(|why| panic!("{name}: {why}"));
        for op in input.ops() {
            runner
                .apply(op)
                .unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        add(&mut total, runner.tally());
        runner
            .finish()
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    println!("{total:#?}");
    // Calls that these operations cannot get refused, or cannot make succeed.
    let never_refused = [
        "Memory PzCreate",
        "Event CnoCreate",
        "Event CnoCreateWithAgent",
        "Adapter DirectAccess",
        "Adapter Strerror",
    ];
    let never_succeeds = [
        "Endpoint ModifyState",
        "Event EvdDequeue",
        "Adapter StrerrorOf",
    ];
    for (call, [done, refused]) in &total {
        assert!(
            *done > 0 || never_succeeds.contains(&call.as_str()),
            "{call} never succeeded"
        );
        assert!(
            *refused > 0 || never_refused.contains(&call.as_str()),
            "{call} was never refused"
        );
    }
    assert!(total.len() > 60, "{} calls", total.len());
}

/// Every seed file that comes from a scenario matches that scenario.
///
/// Spec: GEN-06
#[test]
fn seed_files_match_their_scenarios() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/ops");
    for (name, input) in dat_oracle::scenarios::all() {
        let kept = std::fs::read(seeds.join(name)).unwrap_or_default();
        let bytes = input.encode();
        assert!(
            kept == bytes,
            "{name} changed: `cargo run --release --features c,sched --bin seeds ops` in fuzz writes the seeds"
        );
        assert_eq!(input.ops().len(), input.ops.len(), "{name} is too long");
    }
}
