//! The suites with every access of memory, or every order between threads, looked at.

use anyhow::{Context, Result, bail};
use cargo_metadata::camino::Utf8PathBuf;
use std::fmt::Write as _;
use std::process::Command;
use xshell::cmd;

use crate::artifacts;
use crate::tools;
use crate::workspace::Workspace;

/// What looks on.
struct Sanitizer {
    name: &'static str,
    /// Its settings, in the variable that it reads.
    settings: (&'static str, &'static str),
    /// It has to see the standard library too, which is built for that.
    everywhere: bool,
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        // Storage of adapters that live as long as the process is given up for good.
        settings: ("ASAN_OPTIONS", "detect_leaks=0"),
        everywhere: false,
    },
    Sanitizer {
        name: "thread",
        settings: ("TSAN_OPTIONS", "halt_on_error=1"),
        everywhere: true,
    },
];

/// What the thread sanitizer takes for a race and is none.
const SUPPRESSIONS: &str = "checks/assurance/thread-sanitizer.txt";
/// Those whose tests run in one process without anything of the system.
const PACKAGES: [&str; 7] = [
    "dat-core",
    "dat-rsm",
    "backend-mock",
    "backend-mmio",
    "mmio-model",
    "dat-model",
    "dat-tests",
];

/// How many tests one process runs: what storage they give up, and what a sanitizer remembers of it, goes with the process.
const AT_ONCE: usize = 100;

/// Runs the suites under each sanitizer; a finding ends the test that it is of.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add --toolchain nightly rust-src").run()?;
    let host = tools::host(workspace)?;
    let mut table = String::from("| sanitizer | tests | findings |\n|---|---|---|\n");
    for sanitizer in &SANITIZERS {
        let name = sanitizer.name;
        let mut passed = 0;
        for suite in build(workspace, sanitizer, &host)? {
            let count = suite.run(workspace, sanitizer)?;
            println!("{name}: {count} tests of {}", suite.name);
            passed += count;
        }
        if passed == 0 {
            bail!("no test ran under the {name} sanitizer");
        }
        let _ = writeln!(table, "| {name} | {passed} | 0 |");
    }
    Ok(table)
}

/// A program of tests.
struct Suite {
    name: String,
    program: Utf8PathBuf,
    /// The folder of its package, where its tests run.
    folder: Utf8PathBuf,
}

/// Builds the tests of all packages for the sanitizer.
fn build(workspace: &Workspace, sanitizer: &Sanitizer, host: &str) -> Result<Vec<Suite>> {
    let name = sanitizer.name;
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace.root())
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        // What looks on makes everything many times slower.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["test", "--no-run", "--lib", "--tests"])
        .args(["--target", host, "--target-dir"])
        .arg(workspace.target().join("sanitizers").join(name));
    if sanitizer.everywhere {
        command.arg("-Zbuild-std");
    }
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    let built = artifacts::of(&mut command, &format!("the suite for the {name} sanitizer"))?;
    let tests = built.into_iter().filter(|artifact| artifact.profile.test);
    tests
        .filter_map(|artifact| {
            Some((
                artifact.executable?,
                artifact.target.name,
                artifact.manifest_path,
            ))
        })
        .map(|(program, name, manifest)| {
            let folder = manifest.parent().context("a package is in a folder")?;
            Ok(Suite {
                name,
                program,
                folder: folder.to_owned(),
            })
        })
        .collect()
}

impl Suite {
    /// Runs all tests, so many at once; how many passed.
    fn run(&self, workspace: &Workspace, sanitizer: &Sanitizer) -> Result<u64> {
        let listed = self.command().args(["--list", "--format=terse"]).output()?;
        if !listed.status.success() {
            bail!("{} does not list its tests", self.name);
        }
        let listed = String::from_utf8(listed.stdout)?;
        let names: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .collect();
        let (variable, settings) = sanitizer.settings;
        let mut settings = settings.to_owned();
        if sanitizer.everywhere {
            let known = workspace.root().join(SUPPRESSIONS);
            settings += &format!(":suppressions={}", known.display());
        }
        let mut sum = 0;
        for some in names.chunks(AT_ONCE) {
            let output = self
                .command()
                .env(variable, &settings)
                .arg("--exact")
                .args(some)
                .output()?;
            let told = String::from_utf8_lossy(&output.stdout);
            let wrong = String::from_utf8_lossy(&output.stderr);
            let passed = counted(&told, " passed");
            // Each of those that were named ran, or is one to be ignored.
            let all = passed + counted(&told, " ignored") == some.len() as u64;
            if !output.status.success() || !all {
                bail!(
                    "{} under the {} sanitizer:\n{told}\n{wrong}",
                    self.name,
                    sanitizer.name
                );
            }
            sum += passed;
        }
        Ok(sum)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// How many tests passed, if any.
pub(super) fn passed(told: &str) -> Option<u64> {
    Some(counted(told, " passed")).filter(|sum| *sum != 0)
}

/// How many tests all programs say of that they are so.
fn counted(told: &str, what: &str) -> u64 {
    let results = told.lines().filter_map(|line| {
        let counts = line.strip_prefix("test result: ok. ")?;
        let mut counts = counts.split("; ");
        counts.find_map(|count| count.strip_suffix(what)?.parse::<u64>().ok())
    });
    results.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_programs_are_counted_together() {
        let told = "test result: ok. 40 passed; 0 failed; 1 ignored\ntest a ... ok\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!(passed(told), Some(42));
        assert_eq!(counted(told, " ignored"), 1);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed\n"), None);
    }
}
