//! A million operations of RoCEv2 in software over a network that loses and damages packets.

use anyhow::{Result, bail};
use std::fmt::Write as _;
use xshell::cmd;

use crate::workspace::Workspace;

/// The seeds of this run; see `million` in the tests.
const SEED_VARIABLE: &str = "DAT_SEED";
/// The prefix of a row of counts.
const MARK: &str = "carried|";
/// The columns of a row.
const COLUMNS: [&str; 6] = [
    "between",
    "operations",
    "retransmits",
    "time-outs",
    "duplicates",
    "receiver not ready",
];

/// Runs the long forms of the tests, from `seed`; returns the section of the report.
pub(super) fn run(workspace: &Workspace, seed: u64) -> Result<String> {
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
        output += &tests.env(SEED_VARIABLE, seed.to_string()).read()?;
        output.push('\n');
    }
    let again = format!("`cargo xtask harden --only bad-network --seed {seed}`");
    Ok(format!("{}\n{again}\n", section(&output)?))
}

/// Returns the table of the rows in the tests' output: one of each level.
fn section(output: &str) -> Result<String> {
    let mut table = format!(
        "| {} |\n|{}\n",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    // Output of the test harness may precede the mark on the line.
    let rows = output.lines().filter_map(|line| line.split_once(MARK));
    let rows: Vec<Vec<&str>> = rows.map(|(_, row)| row.split('|').collect()).collect();
    if rows.len() != 2 || rows.iter().any(|row| row.len() != COLUMNS.len()) {
        bail!("unexpected counts in the test output:\n{output}");
    }
    for row in rows {
        writeln!(table, "| {} |", row.join(" | "))?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_each_level_is_expected() {
        let rows = "test a ... carried|engines|1|2|3|4|5\nok\ncarried|adapters|6|7|8|9|10\n";
        let table = section(rows).expect("a table");
        assert!(
            table.ends_with("| engines | 1 | 2 | 3 | 4 | 5 |\n| adapters | 6 | 7 | 8 | 9 | 10 |\n")
        );
        assert!(section("carried|engines|1|2|3|4|5\n").is_err());
        assert!(section("carried|engines|1\ncarried|adapters|1\n").is_err());
    }
}
