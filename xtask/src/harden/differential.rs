//! The same random lists of operations on several backends.

use anyhow::{Result, bail};
use xshell::cmd;

use crate::workspace::Workspace;

/// Lists of each layout that a minute has room for, on a machine that does something else as well.
const LISTS_PER_MINUTE: u32 = 100;
/// What begins a row of counts.
const MARK: &str = "compared|";
/// The heads of the columns.
const COLUMNS: [&str; 6] = [
    "backend",
    "lists",
    "operations",
    "returns",
    "events",
    "memory",
];

/// Runs as many lists as there is time for; the counts as a section of the page.
pub(crate) fn run(workspace: &Workspace, minutes: u32) -> Result<String> {
    let shell = &workspace.shell;
    let _lists = shell.push_env(
        "DAT_LISTS",
        minutes.saturating_mul(LISTS_PER_MINUTE).to_string(),
    );
    let output = cmd!(
        shell,
        "cargo test --package dat-tests --test differential -- --nocapture"
    )
    .ignore_status()
    .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("backends differ:\n{told}{said}");
    }
    // A line may begin with the name of its test.
    let counted = told.lines().filter_map(|line| line.split_once(MARK));
    let mut rows: Vec<&str> = counted.map(|(_, row)| row).collect();
    rows.sort_unstable();
    let is_whole = |row: &&str| row.split('|').count() == COLUMNS.len();
    if rows.is_empty() || !rows.iter().all(is_whole) {
        bail!("this is not what the test counts:\n{told}");
    }
    let mut table = format!(
        "| {} |\n|{}\n",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    for row in rows {
        table.push_str(&format!("| {} |\n", row.replace('|', " | ")));
    }
    Ok(table)
}
