//! Random runs of remote shared memory get everywhere.

use arbitrary::{Arbitrary, Unstructured};
use dat_model::Tally;
use dat_model::rsm::{Op, Runner, Setup, shrink};
use random_runs::{add, bytes};

mod random_runs;

/// Spec: RSMGEN-01, RSMGEN-05
#[test]
fn every_call_succeeds_and_is_refused_somewhere() {
    let mut total = Tally::new();
    for seed in 0..250 {
        let setup = Setup {
            seed,
            credentials: (seed % 3) as u8,
            default_access: (seed / 3 % 8) as u8,
            empty: seed % 5 == 4,
            ..Setup::default()
        };
        let bytes = bytes(seed, 1200);
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
    println!("{total:#?}");
    for (call, [done, refused]) in &total {
        assert!(*done > 0, "{call} never succeeded");
        assert!(*refused > 0, "{call} was never refused");
    }
    assert_eq!(total.len(), 27, "calls");
}
