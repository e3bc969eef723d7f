//! Sides that misbehave on purpose: the runner reports each, with scenario, side and last step.

use std::path::Path;
use std::time::Duration;

use backend_roce::PathChoice;
use dat_core::flags::CompletionFlags;
use dat_tests::fixture::equal;

use crate::runner::{Failure, Role, Scenario, two_sides};
use crate::side::Side;

/// Patience of the runner with a side that hangs; the others need none.
const SHORT: Duration = Duration::from_secs(10);

/// Plays a scenario that must fail; the report names all of these, and no process is left.
fn fails<N: Fn(&Side), F: Fn(&Side)>(near: N, far: F, groups: usize, named: &[&str]) {
    let sides: [Role<'_>; 2] = [("near", &near), ("far", &far)];
    let scenario = Scenario::new::<N>(&sides).with_patience(SHORT);
    let failure: Failure = scenario
        .play(PathChoice::Packets, groups)
        .expect_err("a fault");
    let text = failure.to_string();
    for part in named {
        assert!(
            text.contains(part),
            "`{part}` is not in the report:\n{text}"
        );
    }
    assert_eq!(failure.processes.len(), 2 * groups);
    for process in failure.processes {
        let alive = Path::new("/proc").join(process.to_string()).exists();
        assert!(!alive, "process {process} is left");
    }
}

/// Writes the bytes of a seed to the near side.
fn write(far: &Side, seed: u8) {
    let party = far.party();
    party.memory.fill(seed);
    far.accept(&party);
    let remote = far.offered("memory");
    let segment = [party.memory.segment(0, 64)];
    party.write(&segment, 1, &remote, CompletionFlags::empty());
    far.net.success(&party, 1);
    far.meet("written");
}

/// Expects the bytes of a seed.
fn expect(near: &Side, seed: u8) {
    let party = near.party();
    party.memory.fill(seed);
    let expected = party.memory.content();
    let memory = party.more_memory(4096, dat_core::flags::MemoryPrivileges::ALL);
    near.connect(&party);
    near.offer("memory", &memory.remote(0, 64));
    near.meet("written");
    equal("the memory", &memory.load(0, 64), &expected[..64]);
}

/// Bytes other than the expected ones fail the scenario; the same sides pass with the right ones.
#[test]
fn other_bytes_are_noticed() {
    let report = [
        "scenario `misbehaviour::other_bytes_are_noticed` in 2 processes",
        "near failed",
        "misbehaviour.rs",
        "the memory differs at byte 0 of 64",
        "near: Running, last step: heard `written`",
    ];
    fails(|near| expect(near, 1), |far| write(far, 2), 1, &report);
}

/// The twin of [`other_bytes_are_noticed`] that does as it should.
#[test]
fn right_bytes_pass() {
    two_sides(|near| expect(near, 1), |far| write(far, 1));
}

/// A fault of one of four processes fails the scenario, which names the group.
#[test]
fn fault_of_one_group_is_noticed() {
    fails(
        |near| near.meet("here"),
        |far| {
            far.step("counts to three");
            assert_eq!(1 + 1, 3, "a bad sum");
        },
        2,
        &[
            "in 4 processes: far of group",
            "a bad sum",
            "counts to three",
        ],
    );
}

/// A side that dies is reported, while the other one would wait for ever.
#[test]
fn dead_side_is_noticed() {
    fails(
        |near| {
            near.hear("what never comes");
        },
        |far| {
            far.step("is about to die");
            std::process::abort();
        },
        1,
        &[
            "far died (signal: 6",
            "far: Running, last step: is about to die",
        ],
    );
}

/// A side that leaves early without a fault is reported as well.
#[test]
fn early_end_is_noticed() {
    fails(
        |near| {
            near.hear("what never comes");
        },
        |far| {
            far.step("leaves");
            std::process::exit(0);
        },
        1,
        &["far died (exit status: 0)", "last step: leaves"],
    );
}

/// A side that hangs is reported when no side has taken a step for the runner's patience.
#[test]
fn hanging_side_is_noticed() {
    fails(
        |near| {
            near.hear("what never comes");
        },
        |far| {
            far.step("sleeps for ever");
            loop {
                std::thread::park();
            }
        },
        1,
        &[
            "no side took a step for 10s",
            "near: Running, last step: waits for `what never comes`",
            "far: Running, last step: sleeps for ever",
        ],
    );
}

/// Sides that are at different steps are reported, instead of taking the words of another step.
#[test]
fn crossed_words_are_noticed() {
    fails(
        |near| near.tell("five", &[5]),
        |far| {
            far.hear("six");
        },
        1,
        &["far failed", "side 0 is at another step", "five"],
    );
}

/// An event that never comes is a hang, which names the side that awaits it.
#[test]
fn missing_event_is_noticed() {
    fails(
        |near| {
            let party = near.party();
            near.connect(&party);
            near.step("awaits a message");
            party.receive_into(&[], 1);
            near.net.receive_completion(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            far.step("sends nothing");
            far.hear("nothing");
        },
        1,
        &["no side took a step", "last step: awaits a message"],
    );
}
