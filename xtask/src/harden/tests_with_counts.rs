//! Long forms of tests of this machine, and the counts that they print.

use anyhow::{Context, Result, bail, ensure};
use std::process::Command;
use xshell::cmd;

use super::guest;
use crate::packages;
use crate::test_programs;
use crate::workspace::Workspace;

/// The variable with the first seed of a test.
const SEED: &str = "DAT_SEED";
/// The columns of a row of the tests on a bad network.
const CARRIED: [&str; 6] = [
    "between",
    "operations",
    "retransmits",
    "time-outs",
    "duplicates",
    "receiver not ready",
];
/// The columns of the row of programs that are killed.
const STRESSED: [&str; 5] = [
    "seconds",
    "rounds",
    "descriptors",
    "shared mappings",
    "KiB of memory",
];
/// The columns of a row of the tests of connections.
const EXPLORED: [&str; 5] = ["", "states", "lists of steps", "depth", ""];
/// The length of the longest step lists of connections.
///
/// See `dat-core/src/connection/tests/two_peers.rs`.
const DEPTH: (&str, &str) = ("DAT_CORE_DEPTH", "9");
/// The lists of each backend that a minute allows on a busy machine.
const LISTS_PER_MINUTE: u32 = 100;
/// The distance between the list numbers of two seeds, more than any run needs.
const LISTS_PER_SEED: u64 = 1_000_000;
/// Those of a device, whose lists await rest in real time.
const LISTS_OF_DEVICE: u32 = 20;
/// The backends that are compared with the mock, and the columns of their counts.
const COMPARED: [&str; 5] = ["mlx5", "pvrdma", "roce", "local", "verbs"];
const COLUMNS: [&str; 6] = [
    "backend",
    "lists",
    "operations",
    "returns",
    "events",
    "memory",
];
/// Tests of dat-core in Miri: tables that grow while others look for slots, and lists of free
/// slots.
///
/// Miri has no `mprotect`, so tables in reserved address space (`dat-storage`) do not run in it. A
/// registration takes an address, which strict provenance does not allow: tests of regions are left
/// out.
const IN_MIRI: [&str; 2] = ["sync::slots::", "storage::free_"];

/// Runs a million operations of RoCEv2 in software over a network that loses and damages packets.
pub(super) fn bad_network(workspace: &Workspace, seed: u64) -> Result<String> {
    let mut output = String::new();
    for target in [
        ["--package", "backend-roce", "--test", "transport"],
        ["--package", "dat-tests", "--test", "roce"],
    ] {
        let long = ["--", "--ignored", "--nocapture", "million"];
        let tests = cmd!(
            workspace.shell,
            "cargo test --quiet --release {target...} {long...}"
        );
        output += &tests.env(SEED, seed.to_string()).read()?;
        output.push('\n');
    }
    let rows = rows(&output, "carried|", CARRIED.len())?;
    ensure!(
        rows.len() == 2,
        "one row of each level is expected:\n{output}"
    );
    let again = format!("`cargo xtask harden --only bad-network --seed {seed}`");
    Ok(guest::section(&CARRIED, &rows, &again))
}

/// Explores the connection protocol between two endpoints of the core deeper than its tests do.
pub(super) fn connections(workspace: &Workspace) -> Result<String> {
    let (variable, depth) = DEPTH;
    let output = cmd!(
        workspace.shell,
        "cargo test --quiet --release --package dat-core --features std --lib -- two_peers --nocapture"
    )
    .env(variable, depth)
    .read()?;
    let again = "`cargo xtask harden --only connections`";
    Ok(guest::section(&EXPLORED, &explored(&output)?, again))
}

/// Reads lines `explored: NAME: 5 states, 6 steps, 7 deep, cut off`.
fn explored(output: &str) -> Result<Vec<Vec<String>>> {
    let number = |cell: &str| match cell.split_once(' ') {
        Some((number, _unit)) if number.parse::<u64>().is_ok() => number.to_owned(),
        _ => cell.to_owned(),
    };
    let lines = output.replace(": ", "|").replace(", ", "|");
    let rows = rows(&lines, "explored|", EXPLORED.len())?;
    let numbers = |row: Vec<String>| row.iter().map(|cell| number(cell)).collect();
    Ok(rows.into_iter().map(numbers).collect())
}

/// Compares the models and RoCEv2 in software on lists for `minutes`, and `dat0` on some.
pub(super) fn differential(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let shell = &workspace.shell;
    let first = seed.saturating_mul(LISTS_PER_SEED).saturating_add(1);
    let [here, device] =
        [LISTS_PER_MINUTE, LISTS_OF_DEVICE].map(|each| minutes.saturating_mul(each));
    let output = cmd!(
        shell,
        "cargo test --package dat-tests --test differential --test roce --test roce_local -- --nocapture behaves_like_the_mock"
    );
    let mut text = compared(&mut output.into(), here, first)?;
    cmd!(shell, "cargo build --package dat-verbs").run()?;
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    command.args(["test", "--no-run", "--package", "dat-tests"]);
    command.args(["--features", "verbs", "--test", "verbs_differential"]);
    for test in test_programs::built(&mut command, "the test of a device")? {
        let mut program = test.command();
        program.envs(test.on_library());
        program.args(["--test-threads=1", "--nocapture"]);
        text += &compared(&mut program, device, first)?;
    }
    let rows = rows(&text, "compared|", COLUMNS.len())?;
    for backend in COMPARED {
        let is_it = |row: &Vec<String>| row.first().is_some_and(|name| name == backend);
        ensure!(rows.iter().any(is_it), "no list ran on {backend}:\n{text}");
    }
    let again =
        format!("`cargo xtask harden --only differential --minutes {minutes} --seed {seed}`");
    Ok(guest::section(&COLUMNS, &rows, &again))
}

/// Kills and starts verbs programs for `minutes`.
pub(super) fn programs(workspace: &Workspace, minutes: u32) -> Result<String> {
    let shell = &workspace.shell;
    packages::install_for(shell, ["rping", "ib_write_bw"])?;
    let output = cmd!(
        shell,
        "cargo test --package dat-verbs --test programs -- stress --ignored --nocapture"
    )
    .env("DAT_STRESS_SECONDS", (u64::from(minutes) * 60).to_string())
    .read()?;
    let rows = rows(&output, "stressed|", STRESSED.len())?;
    ensure!(rows.len() == 1, "one row is expected:\n{output}");
    let again = format!("`cargo xtask harden --only programs --minutes {minutes}`");
    Ok(guest::section(&STRESSED, &rows, &again))
}

/// Runs tests that compare `lists` lists, and returns what they print.
fn compared(command: &mut Command, lists: u32, first: u64) -> Result<String> {
    command.env("DAT_LISTS", lists.to_string());
    command.env(SEED, first.to_string());
    let output = command.output().context("tests of lists")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("backends differ:\n{text}{errors}");
    }
    Ok(text.into_owned())
}

/// Returns the rows that tests printed, sorted.
fn rows(output: &str, mark: &str, columns: usize) -> Result<Vec<Vec<String>>> {
    // A line may begin with the name of its test.
    let marked = output.lines().filter_map(|line| line.split_once(mark));
    let split = |(_, row): (&str, &str)| row.split('|').map(str::to_owned).collect();
    let mut rows: Vec<Vec<String>> = marked.map(split).collect();
    rows.sort_unstable();
    if rows.is_empty() || rows.iter().any(|row| row.len() != columns) {
        bail!("unexpected counts in the test output:\n{output}");
    }
    Ok(rows)
}

/// Runs the suite on device models behind a mailbox.
pub(super) fn mailbox(workspace: &Workspace) -> Result<String> {
    let scope = ["--package", "dat-tests", "--features", "mailbox"];
    let tests = cmd!(
        workspace.shell,
        "cargo test --quiet {scope...} --test mmio mailbox"
    );
    Ok(format!("{} tests pass.\n", passed(&tests.read()?)?))
}

/// Runs tests in Miri, which finds undefined behaviour and races, with strict provenance.
pub(super) fn miri(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    let version = cmd!(shell, "rustup run nightly cargo miri --version").quiet();
    if version.ignore_stdout().ignore_stderr().run().is_err() {
        bail!("Miri is missing; run `rustup component add --toolchain nightly miri rust-src`");
    }
    let flags = "-Zmiri-strict-provenance -Zmiri-disable-isolation";
    let tests = cmd!(
        shell,
        "rustup run nightly cargo miri test --package dat-core --features std --lib -- {IN_MIRI...}"
    );
    let passed = passed(&tests.env("MIRIFLAGS", flags).read()?)?;
    Ok(format!(
        "{passed} tests of dat-core pass, with strict provenance.\n"
    ))
}

/// Returns the number of passed tests, and prints it.
fn passed(output: &str) -> Result<u64> {
    let passed =
        test_programs::passed(output).with_context(|| format!("no test ran:\n{output}"))?;
    println!("{passed} tests");
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_tests_become_sorted_rows() {
        let text = "running 2 tests\nit|b|2\ntest one ... it|a|1\nok\n";
        let found = rows(text, "it|", 2).expect("rows");
        assert_eq!(found, [["a", "1"], ["b", "2"]]);
        assert!(rows(text, "it|", 3).is_err());
        assert!(rows("running 2 tests", "it|", 2).is_err());
    }

    #[test]
    fn reports_of_connections_become_rows() {
        let output = "running 2 tests\n.explored: b: 5 states, 6 steps, 7 deep, cut off\nexplored: a: 1 states, 2 steps, 3 deep, complete\n";
        let found = explored(output).expect("rows");
        assert_eq!(
            found,
            [
                ["a", "1", "2", "3", "complete"],
                ["b", "5", "6", "7", "cut off"]
            ]
        );
        assert!(explored("explored: a: 1 states\n").is_err());
    }
}
