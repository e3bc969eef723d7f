//! Random operations on two engines of remote shared memory and on their oracle.
//!
//! `PROPTEST_CASES` sets the number of runs, `DAT_ORACLE_SEED` the seed that a failure printed.

use arbitrary::{Arbitrary, Unstructured};
use dat_oracle::Mismatch;
use dat_oracle::rsm::{Op, Runner, Setup};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

#[path = "random_runs/config.rs"]
mod config;

use config::config;

/// Everything that a failure prints to reproduce the run.
#[derive(Clone, Debug)]
struct Run {
    setup: Setup,
    ops: Vec<Op>,
}

struct Segments;

impl ReferenceStateMachine for Segments {
    type State = Run;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Run> {
        (any::<u64>(), any::<u8>(), any::<u8>(), 0..8_u8)
            .prop_map(|(seed, credentials, default_access, empty)| Run {
                setup: Setup {
                    seed,
                    credentials,
                    default_access,
                    empty: empty == 0,
                    ..Setup::default()
                },
                ops: Vec::new(),
            })
            .boxed()
    }

    /// Decodes operations from bytes as a fuzzer does: both draw the same runs.
    fn transitions(_state: &Run) -> BoxedStrategy<Op> {
        vec(any::<u8>(), 60)
            .prop_filter_map("too few bytes", |bytes| {
                Op::arbitrary(&mut Unstructured::new(&bytes)).ok()
            })
            .boxed()
    }

    fn apply(mut state: Run, transition: &Op) -> Run {
        state.ops.push(transition.clone());
        state
    }
}

fn fail(mismatch: &Mismatch, run: &Run) -> ! {
    let ops: Vec<String> = run.ops.iter().map(|op| format!("    {op:?},")).collect();
    panic!("{mismatch}\n{:?}\n[\n{}\n]", run.setup, ops.join("\n"));
}

impl StateMachineTest for Segments {
    type SystemUnderTest = Runner;
    type Reference = Self;

    fn init_test(run: &Run) -> Runner {
        Runner::new(&run.setup).unwrap_or_else(|mismatch| fail(&mismatch, run))
    }

    fn apply(mut runner: Runner, run: &Run, op: Op) -> Runner {
        if let Err(mismatch) = runner.apply(&op) {
            fail(&mismatch, run);
        }
        runner
    }

    fn teardown(runner: Runner, run: Run) {
        if let Err(mismatch) = runner.finish() {
            fail(&mismatch, &run);
        }
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    /// Spec: RSMGEN-01, RSMGEN-05, RSMST-01, RSMST-03, RSMEX-01, RSMEX-02, RSMEX-10, RSMEX-20,
    /// RSMEX-22, RSMPB-01, RSMPB-02, RSMPB-03, RSMPB-10, RSMPB-20, RSMPB-21, RSMIM-01, RSMIM-02,
    /// RSMIM-03, RSMIM-10, RSMGP-01, RSMGP-02, RSMGP-05, RSMGP-07, RSMPV-20, RSMPV-50, RSMPV-52,
    /// RSMPV-57, RSMPV-61, RSMPV-70, RSMPV-73, RSMPV-81, RSMLH-04, RSMLH-11, RSMBR-01, RSMBR-05,
    /// RSMBR-10, RSMBR-11, RSMMD-01, RSMSG-01, RSMSG-02, RSMSG-04, RSMPF-02, RSMPF-03
    #[test]
    fn engines_and_oracle_agree(sequential 1..120 => Segments);
}
