//! The guest jobs of `cargo xtask test --all`: those of every run, and those whose turn it is.

use anyhow::Result;
use clap::ValueEnum;
use xshell::{Shell, cmd};

/// The guest jobs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Jobs {
    /// Those of every run, and those whose turn it is
    #[default]
    Turn,
    /// All
    All,
}

/// The jobs of every run: each pair of ends (verbs, RoCEv2 in software, programs of others) once.
///
/// Arguments select the short form of a job; its seeds are the same each time.
const ALWAYS: [&str; 6] = [
    // Verbs with verbs: one host, two hosts.
    "conformance",
    "hosts",
    // Verbs with OFA's provider.
    "dapl",
    // RoCEv2 in software with verbs, with itself, with OFA's provider.
    "roce",
    "roce_paths",
    "roce_dapl -- 1 few",
];

/// The jobs that take turns, in groups that take about as long.
const TURNS: [&[&str]; 4] = [
    &["rsm -- 1 7", "kill -- 2 7", "smoke"],
    &[
        "faults -- 1 7 network few link modules overrun",
        "copy",
        "processes -- 1",
    ],
    &["hostile -- 1 7", "differential -- 1 7 3", "examples -- 1"],
    &[
        "limits -- 1 7 servers commands programs files",
        "soak -- 10 7 6 4 8",
        "perf",
        NESTED,
    ],
];

/// The job of the image for the paravirtual adapter, which `cargo xtask firmware` runs.
pub(crate) const NESTED: &str = "nested";

impl Jobs {
    /// Returns the value of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::All => "all",
        }
    }

    /// Returns the command lines of the jobs to run, and prints which they are.
    pub(super) fn chosen(self, shell: &Shell) -> Result<Vec<&'static str>> {
        let turn = match self {
            Self::Turn => turn(shell)?,
            Self::All => None,
        };
        let chosen = lines(turn);
        println!("guest jobs: {}", names(&chosen));
        if let Some(turn) = turn {
            let left: Vec<&str> = lines(None)
                .into_iter()
                .filter(|line| !chosen.contains(line))
                .collect();
            println!(
                "turn {} of {}; without {}, which `--jobs all` adds",
                turn + 1,
                TURNS.len(),
                names(&left)
            );
        }
        Ok(chosen)
    }
}

/// Returns the turn of the checked-out revision; `None` if the history is unknown.
///
/// Each commit on the line of first parents advances it, so that four merges in a row run every
/// job.
fn turn(shell: &Shell) -> Result<Option<usize>> {
    let is_shallow = cmd!(shell, "git rev-parse --is-shallow-repository")
        .quiet()
        .ignore_stderr()
        .read();
    if is_shallow.is_ok_and(|answer| answer == "false") {
        let count = cmd!(shell, "git rev-list --count --first-parent HEAD").quiet();
        return Ok(Some(count.read()?.parse::<usize>()? % TURNS.len()));
    }
    println!("the history of this checkout is not complete, so that all guest jobs run");
    Ok(None)
}

/// Returns the command lines of a turn's jobs; all of them without a turn.
fn lines(turn: Option<usize>) -> Vec<&'static str> {
    let in_turn = TURNS.iter().enumerate();
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
    use crate::workspace::Workspace;
    use std::collections::BTreeSet;

    #[test]
    fn every_job_runs_within_as_many_turns_as_there_are() {
        for first in [0, 1, 1234] {
            let some: BTreeSet<&str> = (first..first + TURNS.len())
                .flat_map(|count| lines(Some(count % TURNS.len())))
                .collect();
            assert_eq!(some, lines(None).into_iter().collect());
        }
        for turn in 0..TURNS.len() {
            let lines = lines(Some(turn));
            assert!(ALWAYS.iter().all(|line| lines.contains(line)));
            assert!(lines.len() < super::lines(None).len());
        }
    }

    #[test]
    fn a_shallow_history_runs_all_jobs_and_a_complete_one_a_turn() {
        let workspace = Workspace::load().expect("the workspace");
        let shell = &workspace.shell;
        let folder = tempfile::tempdir().expect("a folder");
        let [whole, shallow] = ["whole", "shallow"].map(|name| folder.path().join(name));
        let git = |arguments: &[&str]| {
            let author = ["-c", "user.name=test", "-c", "user.email=test"];
            cmd!(shell, "git -C {whole} {author...} {arguments...}")
                .quiet()
                .ignore_stdout()
                .run()
                .expect("git");
        };
        shell.create_dir(&whole).expect("a folder");
        git(&["init", "--quiet"]);
        for _ in 0..6 {
            git(&["commit", "--quiet", "--allow-empty", "--message", "one"]);
        }
        let url = format!("file://{}", whole.display());
        cmd!(shell, "git clone --quiet --depth 1 {url} {shallow}")
            .quiet()
            .run()
            .expect("a clone");
        let of = |path: &std::path::Path| {
            let shell = shell.clone();
            shell.change_dir(path);
            turn(&shell).expect("a turn")
        };
        assert_eq!((of(&whole), of(&shallow)), (Some(6 % TURNS.len()), None));
    }

    #[test]
    fn names_of_jobs_are_listed_without_arguments() {
        assert_eq!(names(&["rsm -- 1 7", "smoke"]), "rsm, smoke");
    }
}
