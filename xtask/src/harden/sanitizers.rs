//! The suites with every access of memory, or every order between threads, looked at.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use xshell::cmd;

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

/// Runs the suites under each sanitizer; a finding ends the test that it is of.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add --toolchain nightly rust-src").run()?;
    let host = tools::host(workspace)?;
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let packages: &Vec<&str> = &packages.collect();
    let mut table = String::from("| sanitizer | tests | findings |\n|---|---|---|\n");
    for sanitizer in &SANITIZERS {
        let Sanitizer {
            name,
            settings: (variable, settings),
            everywhere,
        } = *sanitizer;
        let build: &[&str] = if everywhere { &["-Zbuild-std"] } else { &[] };
        let folder = workspace.target().join("sanitizers").join(name);
        let known = workspace.root().join(SUPPRESSIONS);
        let known = if everywhere {
            format!(":suppressions={}", known.display())
        } else {
            String::new()
        };
        let output = cmd!(
            shell,
            "rustup run nightly cargo test {build...} --target {host} --target-dir {folder} --lib --tests {packages...}"
        )
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        .env(variable, format!("{settings}{known}"))
        .ignore_status()
        .output()?;
        let (told, wrong) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if !output.status.success() {
            bail!("under the {name} sanitizer:\n{told}\n{wrong}");
        }
        let passed = passed(&told).with_context(|| format!("no test ran under {name}:\n{told}"))?;
        println!("{name}: {passed} tests");
        let _ = writeln!(table, "| {name} | {passed} | 0 |");
    }
    Ok(table)
}

/// How many tests passed, if any.
pub(super) fn passed(told: &str) -> Option<u64> {
    let results = told.lines().filter_map(|line| {
        let counts = line.strip_prefix("test result: ok. ")?;
        counts.split_once(" passed")?.0.parse::<u64>().ok()
    });
    Some(results.sum()).filter(|sum| *sum != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_programs_are_counted_together() {
        let told = "test result: ok. 40 passed; 0 failed; 1 ignored\ntest a ... ok\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!(passed(told), Some(42));
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed\n"), None);
    }
}
