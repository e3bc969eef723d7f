//! The test programs of a cargo build.

use anyhow::{Context, Result, bail};
use cargo_metadata::camino::Utf8PathBuf;
use std::ffi::OsStr;
use std::process::Command;

use crate::artifacts;
use crate::scope::Scope;
use crate::workspace::Workspace;

/// The library with the device `dat0`, beside the programs that cargo builds.
pub(crate) const LIBRARY: &str = "libdat_verbs.so";
/// That device.
pub(crate) const DEVICE: &str = "dat0";

/// A test program, and the folder of its package, in which its tests run.
pub(crate) struct TestProgram {
    pub(crate) name: String,
    pub(crate) program: Utf8PathBuf,
    pub(crate) folder: Utf8PathBuf,
}

/// Returns the call of cargo that builds all programs, libraries, examples and tests of a scope.
pub(crate) fn build(workspace: &Workspace, scope: Scope) -> Command {
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace.root())
        .args(["test", "--no-run"])
        .args(scope.arguments());
    command
}

/// Builds test programs; `label` names the build in an error.
pub(crate) fn built(command: &mut Command, label: &str) -> Result<Vec<TestProgram>> {
    let built = artifacts::of(command, label)?;
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
            Ok(TestProgram {
                name,
                program,
                folder: folder.to_owned(),
            })
        })
        .collect()
}

impl TestProgram {
    /// Returns the command that runs all tests, in the folder of the package.
    pub(crate) fn command(&self) -> Command {
        self.command_of(&self.program)
    }

    /// Returns the command of another program in the same place.
    pub(crate) fn command_of(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// Returns the variables with which it runs on the device of the library.
    pub(crate) fn on_library(&self) -> [(&'static str, String); 2] {
        let library = self.program.with_file_name(LIBRARY);
        [
            ("LD_PRELOAD", library.into_string()),
            ("DAT_DEVICE", DEVICE.to_owned()),
        ]
    }

    /// Returns the names of the tests.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let listed = self.command().args(["--list", "--format=terse"]).output()?;
        if !listed.status.success() {
            bail!("{} failed to list its tests", self.name);
        }
        let listed = String::from_utf8(listed.stdout)?;
        let names = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }
}

/// Returns the number of passed tests; `None` if it is zero.
pub(crate) fn passed(text: &str) -> Option<u64> {
    Some(counted(text, " passed")).filter(|sum| *sum != 0)
}

/// Sums one kind of count over the results of all test programs.
pub(crate) fn counted(text: &str, suffix: &str) -> u64 {
    let results = text.lines().filter_map(|line| {
        let counts = line.strip_prefix("test result: ok. ")?;
        let mut counts = counts.split("; ");
        counts.find_map(|count| count.strip_suffix(suffix)?.parse::<u64>().ok())
    });
    results.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_of_all_programs_are_added() {
        let text = "test result: ok. 40 passed; 0 failed; 1 ignored\ntest a ... ok\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!(passed(text), Some(42));
        assert_eq!(counted(text, " ignored"), 1);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed\n"), None);
    }
}
