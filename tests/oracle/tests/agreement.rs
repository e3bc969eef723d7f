//! Random operations over all calls, on the core and on the oracle.
//!
//! The core uses the mock fabric.
//!
//! `PROPTEST_CASES` sets the number of runs, `DAT_ORACLE_SEED` the seed that a failure printed.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::FaultPlan;
use dat_oracle::{Mismatch, Op, Prologue, Runner, Setup};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

#[path = "random_runs/config.rs"]
mod config;
#[path = "random_runs/plans.rs"]
mod plans;

use config::config;

/// Everything that a failure prints to reproduce the run.
#[derive(Clone, Debug)]
struct Run {
    setup: Setup,
    ops: Vec<Op>,
}

/// Decodes a value from bytes as a fuzzer does: both draw the same runs.
fn arbitrary<T: for<'a> Arbitrary<'a> + std::fmt::Debug + 'static>(
    bytes: usize,
) -> BoxedStrategy<T> {
    vec(any::<u8>(), bytes)
        .prop_filter_map("too few bytes", |bytes| {
            T::arbitrary(&mut Unstructured::new(&bytes)).ok()
        })
        .boxed()
}

fn prologue() -> impl Strategy<Value = Prologue> {
    prop_oneof![
        1 => Just(Prologue::Empty),
        4 => Just(Prologue::Pair),
        3 => Just(Prologue::Shared),
    ]
}

struct Exact;

impl ReferenceStateMachine for Exact {
    type State = Run;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Run> {
        (any::<u64>(), any::<bool>(), prologue())
            .prop_map(|(seed, non_coherent, prologue)| Run {
                setup: Setup {
                    seed,
                    non_coherent,
                    prologue,
                    faults: FaultPlan::default(),
                },
                ops: Vec::new(),
            })
            .boxed()
    }

    fn transitions(_state: &Run) -> BoxedStrategy<Op> {
        arbitrary(40)
    }

    fn apply(mut state: Run, transition: &Op) -> Run {
        state.ops.push(transition.clone());
        state
    }
}

/// Runs with faults: after the first effect, the run checks invariants.
struct Faulty;

impl ReferenceStateMachine for Faulty {
    type State = Run;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Run> {
        let fault = any::<[u8; 4]>().prop_map(|[kind, adapter, which, nth]| {
            plans::fault(kind % plans::KINDS, adapter, which, nth)
        });
        (Exact::init_state(), vec(fault, 1..4))
            .prop_map(|(run, faults)| Run {
                setup: Setup {
                    faults: FaultPlan { faults },
                    ..run.setup
                },
                ..run
            })
            .boxed()
    }

    fn transitions(state: &Run) -> BoxedStrategy<Op> {
        Exact::transitions(state)
    }

    fn apply(state: Run, transition: &Op) -> Run {
        <Exact as ReferenceStateMachine>::apply(state, transition)
    }
}

fn fail(mismatch: &Mismatch, run: &Run) -> ! {
    let ops: Vec<String> = run.ops.iter().map(|op| format!("    {op:?},")).collect();
    panic!("{mismatch}\n{:?}\n[\n{}\n]", run.setup, ops.join("\n"));
}

fn begin(run: &Run) -> Runner {
    Runner::new(&run.setup).unwrap_or_else(|mismatch| fail(&mismatch, run))
}

fn go_on(mut runner: Runner, run: &Run, op: &Op) -> Runner {
    if let Err(mismatch) = runner.apply(op) {
        fail(&mismatch, run);
    }
    runner
}

fn end(runner: Runner, run: &Run) {
    if let Err(mismatch) = runner.finish() {
        fail(&mismatch, run);
    }
}

impl StateMachineTest for Exact {
    type SystemUnderTest = Runner;
    type Reference = Self;

    fn init_test(run: &Run) -> Runner {
        begin(run)
    }

    fn apply(runner: Runner, run: &Run, op: Op) -> Runner {
        go_on(runner, run, &op)
    }

    fn teardown(runner: Runner, run: Run) {
        end(runner, &run);
    }
}

impl StateMachineTest for Faulty {
    type SystemUnderTest = Runner;
    type Reference = Self;

    fn init_test(run: &Run) -> Runner {
        begin(run)
    }

    fn apply(runner: Runner, run: &Run, op: Op) -> Runner {
        go_on(runner, run, &op)
    }

    fn teardown(runner: Runner, run: Run) {
        end(runner, &run);
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    /// Spec: GEN-01, GEN-03, GEN-04, GEN-06, GEN-07, GEN-08, GEN-11, GEN-15, DTO-01, DTO-03,
    /// DTO-04, DTO-05, DTO-06, DTO-07, DTO-10, DTO-11, DTO-12, EVW-09, EVG-01, EVG-03
    #[test]
    fn core_and_oracle_agree(sequential 1..120 => Exact);

    /// Spec: DTO-08, DTO-11, DTO-12
    #[test]
    fn invariants_hold_with_faults(sequential 1..120 => Faulty);
}
