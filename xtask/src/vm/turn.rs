//! The guest jobs of `cargo xtask test --all`: those of every run, and those whose turn it is.

use crate::turn::TURNS;

/// The jobs of every run: each pair of ends (verbs, RoCEv2 in software, programs of others) once.
///
/// Arguments select the short form of a job; its seeds are the same each time. What needs a device
/// of verbs but not that of the kernel runs on `dat0`, without a guest (step `verbs`).
const ALWAYS: [&str; 4] = [
    // The device of the kernel.
    "conformance -- device",
    // Verbs with OFA's provider.
    "dapl",
    // RoCEv2 in software with verbs, with OFA's provider.
    "roce",
    "roce_dapl -- 1 few",
];

/// The jobs that take turns, in groups that take about as long.
const IN_TURN: [&[&str]; TURNS] = [
    // Verbs with verbs of another host.
    &["hosts"],
    &["faults -- 1 7 network few link modules"],
    // Remote shared memory and windows of type 2 there; RoCEv2 in software with itself.
    &["conformance -- rest", "roce_paths"],
    &["limits -- 1 7 servers commands programs files", NESTED],
];

/// The job of the image for the paravirtual adapter, which `cargo xtask firmware` runs.
pub(crate) const NESTED: &str = "nested";

/// Returns the command lines of the jobs to run, and prints which they are.
pub(super) fn chosen(turn: Option<usize>) -> Vec<&'static str> {
    let chosen = lines(turn);
    println!("guest jobs: {}", names(&chosen));
    if turn.is_some() {
        let left: Vec<&str> = lines(None)
            .into_iter()
            .filter(|line| !chosen.contains(line))
            .collect();
        println!("left to other turns: {}", names(&left));
    }
    chosen
}

/// Returns the command lines of a turn's jobs; all of them without a turn.
fn lines(turn: Option<usize>) -> Vec<&'static str> {
    let in_turn = IN_TURN.iter().enumerate();
    let in_turn = in_turn.filter(|(index, _)| turn.is_none_or(|turn| turn == *index));
    let in_turn = in_turn.flat_map(|(_, group)| group.iter().copied());
    ALWAYS.into_iter().chain(in_turn).collect()
}

fn names(lines: &[&str]) -> String {
    let names = lines.iter().filter_map(|line| line.split(' ').next());
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_job_runs_within_as_many_turns_as_there_are() {
        for first in [0, 1, 1234] {
            let some: BTreeSet<&str> = (first..first + TURNS)
                .flat_map(|count| lines(Some(count % TURNS)))
                .collect();
            assert_eq!(some, lines(None).into_iter().collect());
        }
        for turn in 0..TURNS {
            let lines = lines(Some(turn));
            assert!(ALWAYS.iter().all(|line| lines.contains(line)));
            assert!(lines.len() < super::lines(None).len());
        }
    }

    #[test]
    fn names_of_jobs_are_listed_without_arguments() {
        assert_eq!(names(&["faults -- 1 7", "hosts"]), "faults, hosts");
    }
}
