//! Random runs with faults.
//!
//! `DAT_ORACLE_SEED` sets the first seed. `DAT_ORACLE_RUNS` sets the number of runs of each kind of
//! fault, and of runs with several faults. Without them the runs are the same each time.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::{Fault, FaultPlan};
use dat_oracle::{Op, Prologue, Runner, Setup, shrink};
use plans::{KINDS, fault};
use random_runs::bytes;
use seeds::seeds;

#[path = "random_runs/plans.rs"]
mod plans;
mod random_runs;
#[path = "random_runs/seeds.rs"]
mod seeds;

/// Number of runs of each kind of fault, and of runs with several kinds.
const ALONE: u64 = 30;
const TOGETHER: u64 = 100;

/// Operations before and after the first effect, and number of effective faults.
#[derive(Default)]
struct Done {
    before: usize,
    after: usize,
    happened: usize,
}

fn play(seed: u64, faults: Vec<Fault>) -> Done {
    let prologues = [Prologue::Pair, Prologue::Shared, Prologue::Pair];
    let setup = Setup {
        seed,
        non_coherent: seed.is_multiple_of(5),
        prologue: prologues[(seed % 3) as usize],
        faults: FaultPlan { faults },
    };
    let bytes = bytes(seed, 1200);
    let mut input = Unstructured::new(&bytes);
    let mut ops = Vec::new();
    let mut done = Done::default();
    let mut runner = Runner::new(&setup).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    while !input.is_empty() {
        let Ok(op) = Op::arbitrary(&mut input) else {
            break;
        };
        ops.push(op.clone());
        if let Err(mismatch) = runner.apply(&op) {
            panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(&setup, &ops));
        }
        done.happened = runner.happened().len();
        if done.happened == 0 {
            done.before += 1;
        } else {
            done.after += 1;
        }
    }
    if let Err(mismatch) = runner.finish() {
        panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(&setup, &ops));
    }
    done
}

/// Spec: DTO-08, DTO-11, DTO-12
#[test]
fn core_and_oracle_agree_until_a_fault_has_an_effect() {
    for kind in 0..KINDS {
        let (mut struck, mut runs) = (0, 0);
        let mut sum = Done::default();
        for seed in seeds(0, ALONE) {
            let random = bytes(seed ^ 0x5EED, 3);
            let done = play(seed, vec![fault(kind, random[0], random[1], random[2])]);
            runs += 1;
            struck += usize::from(done.happened != 0);
            sum.before += done.before;
            sum.after += done.after;
        }
        let fault = fault(kind, 0, 0, 0);
        println!(
            "{fault:?}: {struck} of {runs}; {} operations before, {} after",
            sum.before, sum.after
        );
        assert!(struck > 0, "{fault:?} never had an effect");
        assert!(sum.before > 0, "{fault:?} had its effect before anything");
    }
}

/// Spec: DTO-08, DTO-11, DTO-12
#[test]
fn several_faults_cause_only_allowed_outcomes() {
    let mut happened = 0;
    for seed in seeds(1, TOGETHER) {
        let random = bytes(!seed, 16);
        let some = random.chunks_exact(5).take(usize::from(random[15] % 3) + 1);
        let faults = some.map(|some| fault(some[0], some[1], some[2], some[3]));
        happened += play(seed, faults.collect()).happened;
    }
    assert!(happened > 0, "nothing went wrong");
}
