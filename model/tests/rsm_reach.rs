//! Random runs of remote shared memory get everywhere.

use arbitrary::{Arbitrary, Unstructured};
use dat_model::Tally;
use dat_model::rsm::{Op, Runner, Setup, shrink};

/// Bytes as a linear congruential generator gives them.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let step = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(step).take(1200).collect()
}

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
        };
        let bytes = bytes(seed);
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
        for (call, counts) in runner.tally() {
            let sum = total.entry(call.clone()).or_default();
            sum[0] += counts[0];
            sum[1] += counts[1];
        }
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
