//! The turn of a revision: the share of the long checks that `cargo xtask test --all` runs.

use anyhow::Result;
use clap::ValueEnum;
use xshell::{Shell, cmd};

/// The number of turns, after which each check has run.
pub(crate) const TURNS: usize = 4;

/// The checks of a run that take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Jobs {
    /// Those whose turn it is, by the number of commits
    #[default]
    Turn,
    /// All
    All,
}

impl Jobs {
    /// Returns the value of the option.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::All => "all",
        }
    }

    /// Returns the turn of the checked-out revision; `None` if all checks run.
    pub(crate) fn turn(self, shell: &Shell) -> Result<Option<usize>> {
        match self {
            Self::Turn => of_history(shell),
            Self::All => Ok(None),
        }
    }
}

/// Returns the turn of the checked-out revision; `None` if its history is not complete.
///
/// Each commit on the line of first parents advances it, so that four merges in a row run every
/// check.
fn of_history(shell: &Shell) -> Result<Option<usize>> {
    let is_shallow = cmd!(shell, "git rev-parse --is-shallow-repository")
        .quiet()
        .ignore_stderr()
        .read();
    if is_shallow.is_ok_and(|answer| answer == "false") {
        let count = cmd!(shell, "git rev-list --count --first-parent HEAD").quiet();
        return Ok(Some(count.read()?.parse::<usize>()? % TURNS));
    }
    println!("the history of this checkout is not complete, so that the checks of all turns run");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

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
            of_history(&shell).expect("a turn")
        };
        assert_eq!((of(&whole), of(&shallow)), (Some(6 % TURNS), None));
    }
}
