//! Coverage of random runs of remote shared memory, with faults as well.
//!
//! `DAT_ORACLE_SEED` sets the first seed. `DAT_ORACLE_RUNS` sets the number of runs of each kind of
//! fault, and of runs with several faults. Without them the runs are the same each time.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::Fault;
use dat_oracle::rsm::{Faults, ImportOp, KINDS, Op, Runner, Setup, fault, shrink};
use dat_oracle::{Side, Tally};
use random_runs::bytes;
use seeds::seeds;
use sum::add;

mod random_runs;
#[path = "random_runs/seeds.rs"]
mod seeds;
#[path = "random_runs/sum.rs"]
mod sum;

/// Number of runs of each kind of fault, and of runs with several kinds.
const ALONE: u64 = 40;
const TOGETHER: u64 = 120;

/// Empty list of calls.
const NOTHING: [&String; 0] = [];

/// Calls of a run, and the number of effective faults.
struct Done {
    tally: Tally,
    happened: usize,
}

/// Runs the operations in the first `length` bytes of a seed.
fn play(setup: &Setup, length: usize) -> Done {
    let bytes = bytes(setup.seed, length);
    let mut input = Unstructured::new(&bytes);
    let mut ops = Vec::new();
    let mut runner = Runner::new(setup).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    while !input.is_empty() {
        let Ok(op) = Op::arbitrary(&mut input) else {
            break;
        };
        ops.push(op.clone());
        if let Err(mismatch) = runner.apply(&op) {
            panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(setup, &ops));
        }
    }
    let (tally, happened) = (runner.tally().clone(), runner.happened().len());
    if let Err(mismatch) = runner.finish() {
        panic!("{mismatch}\n{setup:?}\n{:#?}", shrink(setup, &ops));
    }
    Done { tally, happened }
}

/// Returns a seed's setup without faults; one in `empty` starts without segments and connections.
fn set_up(seed: u64, empty: u64) -> Setup {
    Setup {
        seed,
        credentials: (seed % 3) as u8,
        default_access: (seed / 3 % 8) as u8,
        empty: seed % empty == empty - 1,
        ..Setup::default()
    }
}

fn run(seed: u64, faults: Vec<Fault>) -> Done {
    let setup = Setup {
        faults: Faults(faults),
        ..set_up(seed, 8)
    };
    play(&setup, 800)
}

/// Spec: RSMGEN-01, RSMGEN-05
#[test]
fn every_call_succeeds_and_is_refused_somewhere() {
    let mut total = Tally::new();
    for seed in 0..250 {
        add(&mut total, &play(&set_up(seed, 5), 1200).tally);
    }
    println!("{total:#?}");
    for (call, [done, refused]) in &total {
        assert!(*done > 0, "{call} never succeeded");
        assert!(*refused > 0, "{call} was never refused");
    }
    assert_eq!(total.len(), 27, "calls");
}

/// Returns the fault of a kind for a seed.
fn seeded(kind: u8, seed: u64) -> Fault {
    let random = bytes(seed ^ 0x5EED, 3);
    fault(kind, random[0], random[1], random[2])
}

/// Returns several faults for a seed.
fn several(seed: u64) -> Vec<Fault> {
    let random = bytes(!seed, 16);
    let count = usize::from(random[15] % 3) + 1;
    let some = random.chunks(5).take(count);
    some.map(|some| fault(some[0], some[1], some[2], some[3]))
        .collect()
}

/// Returns the calls that ended differently because of faults.
fn excused(tally: &Tally) -> Vec<&String> {
    tally.keys().filter(|call| call.contains(':')).collect()
}

/// Returns true if a fault of this kind excuses no outcome.
fn is_benign(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::DelayCompletion { .. }
            | Fault::DuplicateCompletion { .. }
            | Fault::ReorderCompletion { .. }
    )
}

/// Runs that are the same each time, unless the environment sets the seeds.
///
/// Spec: RSMPV-50, RSMPV-54, RSMPV-56, RSMBR-05, RSMBR-09, RSMST-03
#[test]
fn each_kind_of_fault_strikes_and_excuses_no_more_than_it_may() {
    let mut met = 0;
    for kind in 0..KINDS {
        let mut total = Tally::new();
        let (mut struck, mut runs) = (0, 0);
        for seed in seeds(0, ALONE) {
            runs += 1;
            let done = run(seed, vec![seeded(kind, seed)]);
            struck += usize::from(done.happened != 0);
            add(&mut total, &done.tally);
        }
        let fault = seeded(kind, 0);
        println!("{fault:?}: {struck} of {runs}: {:?}", excused(&total));
        assert!(struck > 0, "{fault:?} never had an effect");
        if is_benign(&fault) {
            assert_eq!(excused(&total), NOTHING, "{fault:?}");
        }
        met += u8::from(!excused(&total).is_empty());
    }
    // Otherwise calls would not show any effect of faults, and the table would not be tested.
    assert!(met > KINDS / 2, "{met} kinds");
}

/// An answer that the device refused once was never sent again.
///
/// Only the other node had requested the link, and no other message on the way triggered a retry.
/// That node waited until it gave up.
///
/// Spec: RSMIM-02
#[test]
fn an_answer_that_the_device_refuses_once_is_sent_again() {
    let setup = Setup {
        seed: 63,
        empty: true,
        // After the message buffers and the one that is posted again.
        faults: Faults(vec![Fault::RefusePost {
            adapter: 0,
            nth: 19,
        }]),
        ..Setup::default()
    };
    let connect = ImportOp::Connect {
        node: 0,
        id: 197,
        permission: 158,
    };
    let mut runner = Runner::new(&setup).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    let done = runner.apply(&Op::Import(Side::B, connect));
    assert_eq!(runner.happened().len(), 1);
    done.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert_eq!(excused(runner.tally()), NOTHING);
}

/// The exporter gave a recovering connection's slot to a new connection.
///
/// The old connection was aborted, and the new one exceeded the limit.
///
/// Spec: RSMBR-09, RSMST-05
#[test]
fn a_reconnecting_peer_keeps_its_slot() {
    // Refused posts, wrong answers, receivers that are not ready.
    for (kind, seed) in [(8, 2352), (8, 3363), (9, 3124), (10, 274)] {
        let done = run(seed, vec![seeded(kind, seed)]);
        assert!(done.happened > 0, "{kind} {seed}");
    }
}

/// Items that an explicit get did not transfer were zeros instead of unchanged.
///
/// Spec: RSMGP-01, RSMPV-42
#[test]
fn items_that_do_not_arrive_keep_their_values() {
    // A lost completion, a crashed host.
    for (kind, seed) in [(0, 1438), (11, 4784)] {
        let done = run(seed, vec![seeded(kind, seed)]);
        assert!(done.happened > 0, "{kind} {seed}");
    }
}

/// Messages overtook one whose completion was late.
///
/// There was no room to receive the next message, and the node ended its link. A recovering
/// connection was requested after a new one, which took its slot.
///
/// Spec: RSMBR-05, RSMST-05
#[test]
fn messages_are_processed_in_the_order_of_their_posts() {
    for seed in [2409, 12188, 12606] {
        let done = run(seed, vec![seeded(1, seed)]);
        assert!(done.happened > 0, "{seed}");
        assert_eq!(excused(&done.tally), NOTHING, "{seed}");
    }
    assert_eq!(run(2966, several(2966)).happened, 2);
}

/// Several faults at once.
///
/// Spec: RSMPV-50, RSMPV-54, RSMPV-56, RSMBR-05, RSMBR-09, RSMST-03
#[test]
fn random_faults_together_excuse_no_more_than_they_may() {
    let mut happened = 0;
    for seed in seeds(1, TOGETHER) {
        happened += run(seed, several(seed)).happened;
    }
    assert!(happened > 0, "nothing went wrong");
}
