//! Checks the workflows of GitHub: their syntax, and the commands of this program that they run.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::PathBuf;
use xshell::cmd;

use crate::workspace::Workspace;
use crate::{Arguments, packages};

/// The linter, a module in a package of Python's registry.
const LINTER: &str = "jactionlint";
const VERSION: &str = "2.3.0";

/// Lints all workflows, and refuses a command with an unknown task, option or step.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let folder = workspace.root().join(".github");
    let files = &shell.read_dir(folder.join("workflows"))?;
    ensure!(!files.is_empty(), "{} has no workflows", folder.display());
    let linter = install(workspace)?;
    let config = folder.join("jactionlint.yaml");
    // Without the tools that only some machines have, so that the findings are the same everywhere.
    let options = ["--strict-exit", "--shellcheck=", "--pyflakes="];
    cmd!(
        shell,
        "python3 -m {LINTER} {options...} --config-file {config} {files...}"
    )
    .env("PYTHONPATH", linter)
    .run()?;
    for file in files {
        check_commands(&shell.read_file(file)?).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Installs the linter unless this version is installed; returns the folder of its package.
fn install(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.tools().join(format!("{LINTER}-{VERSION}"));
    if folder.join(LINTER).is_dir() {
        return Ok(folder);
    }
    let shell = &workspace.shell;
    packages::install_for(shell, ["pip3"])?;
    let options = ["--quiet", "--no-deps", "--only-binary=:all:", "--upgrade"];
    // The registry is asked for this package only, not for a newer installer.
    let notices = ["--disable-pip-version-check", "--root-user-action=ignore"];
    cmd!(
        shell,
        "pip3 install {options...} {notices...} --target {folder} {LINTER}=={VERSION}"
    )
    .run()?;
    Ok(folder)
}

/// Refuses a command with an unknown task, option or step.
fn check_commands(workflow: &str) -> Result<()> {
    for command in commands(workflow) {
        println!("  {command}");
        let words = command.split_whitespace().skip(1);
        Arguments::try_parse_from(words).with_context(|| command.to_owned())?;
    }
    Ok(())
}

/// Returns the commands of this program that a workflow runs.
fn commands(workflow: &str) -> impl Iterator<Item = &str> {
    workflow.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches("- ");
        let line = line.strip_prefix("run:").unwrap_or(line).trim();
        line.starts_with("cargo xtask ").then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKFLOW: &str = "\
# cargo xtask no-comment
jobs:
  test:
    steps:
      - run: cargo xtask test --only format
      - if: always()
        run: cargo xtask advisories
      - run: |
          cargo xtask vm roce
          cargo build
";

    #[test]
    fn commands_of_this_program_are_found() {
        assert_eq!(
            commands(WORKFLOW).collect::<Vec<_>>(),
            [
                "cargo xtask test --only format",
                "cargo xtask advisories",
                "cargo xtask vm roce"
            ]
        );
    }

    #[test]
    fn unknown_tasks_options_and_steps_are_refused() {
        let check = |command: &str| check_commands(&format!("- run: {command}"));
        check("cargo xtask test --all --only format").expect("known");
        check("cargo xtask advisories").expect("known");
        for wrong in [
            "cargo xtask tests",
            "cargo xtask test --everything",
            "cargo xtask test --all --only formats",
        ] {
            let refused = check(wrong).expect_err(wrong);
            assert!(format!("{refused:#}").starts_with(wrong), "{refused:#}");
        }
    }
}
