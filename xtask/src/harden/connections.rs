//! Explores the connection protocol between two endpoints of the core deeper than its tests do.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use xshell::cmd;

use crate::workspace::Workspace;

/// The length of the longest step lists.
const DEPTH: &str = "9";
/// The variable with the depth; see `dat-core/src/connection/two_peers.rs`.
const DEPTH_VARIABLE: &str = "DAT_CORE_DEPTH";

/// Runs the exploration; returns the section of the report.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let output = cmd!(
        workspace.shell,
        "cargo test --quiet --release --package dat-core --features std --lib -- two_peers --nocapture"
    )
    .env(DEPTH_VARIABLE, DEPTH)
    .read()?;
    section(&output)
}

fn section(output: &str) -> Result<String> {
    let mut section =
        String::from("| | states | lists of steps | depth | |\n|---|---|---|---|---|\n");
    let mut rows: Vec<&str> = output
        .lines()
        // Output of the test harness may precede the mark on the line.
        .filter_map(|line| Some(line.split_once("explored: ")?.1))
        .collect();
    if rows.is_empty() {
        bail!("the test explored no states:\n{output}");
    }
    rows.sort_unstable();
    for row in rows {
        let (name, numbers) = row.split_once(": ").context("a name")?;
        let cells: Vec<&str> = numbers.split(", ").collect();
        let [states, steps, depth, end] = cells[..] else {
            bail!("{row} is not a report");
        };
        let number = |cell: &str| cell.split(' ').next().unwrap_or_default().to_owned();
        writeln!(
            section,
            "| {name} | {} | {} | {} | {end} |",
            number(states),
            number(steps),
            number(depth)
        )?;
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_rows_anywhere_in_a_line() {
        let output = "running 2 tests\n.explored: b: 5 states, 6 steps, 7 deep, cut off\nexplored: a: 1 states, 2 steps, 3 deep, complete\n";
        let table = section(output).expect("a table");
        assert!(table.ends_with("| a | 1 | 2 | 3 | complete |\n| b | 5 | 6 | 7 | cut off |\n"));
        assert!(section("running 0 tests").is_err());
    }
}
