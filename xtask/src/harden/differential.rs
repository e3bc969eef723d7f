//! The same random lists of operations on several backends.

use anyhow::{Context, Result, bail, ensure};
use xshell::cmd;

use super::guest;
use crate::workspace::Workspace;

/// The lists of each backend on this host that a minute allows on a busy machine.
const LISTS_PER_MINUTE: u32 = 100;
/// The distance between the list numbers of two seeds, more than any run needs.
const LISTS_PER_SEED: u64 = 1_000_000;
/// The backends that are compared on this host.
const BACKENDS: [&str; 3] = ["mlx5", "pvrdma", "roce"];
/// The prefix of a row of counts.
const MARK: &str = "compared|";
/// Compares the models and RoCEv2 in software on lists for `minutes`, and the guest on some.
///
/// Returns the section of the page.
pub(crate) fn run(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let shell = &workspace.shell;
    let _lists = shell.push_env(
        "DAT_LISTS",
        minutes.saturating_mul(LISTS_PER_MINUTE).to_string(),
    );
    let first = seed.saturating_mul(LISTS_PER_SEED).saturating_add(1);
    let _first = shell.push_env("DAT_SEED", first.to_string());
    let output = cmd!(
        shell,
        "cargo test --package dat-tests --test differential --test roce -- --nocapture behaves_like_the_mock"
    )
    .ignore_status()
    .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("backends differ:\n{text}{errors}");
    }
    let rows = rows(&text)?;
    for backend in BACKENDS {
        ensure!(
            rows.iter()
                .any(|row| row.first().is_some_and(|name| name == backend)),
            "no list ran on {backend}:\n{text}"
        );
    }
    let again =
        format!("`cargo xtask harden --only differential --minutes {minutes} --seed {seed}`");
    guest::run_behind(workspace, &guest::DIFFERENTIAL, minutes, seed, rows, &again)
        .context("in the guest")
}

/// Returns the rows that the tests printed, sorted.
fn rows(text: &str) -> Result<Vec<Vec<String>>> {
    // A line may begin with the name of its test.
    let counted = text.lines().filter_map(|line| line.split_once(MARK));
    let split = |(_, row): (&str, &str)| row.split('|').map(str::to_owned).collect();
    let mut rows: Vec<Vec<String>> = counted.map(split).collect();
    rows.sort_unstable();
    let columns = guest::DIFFERENTIAL.columns.len();
    if rows.is_empty() || rows.iter().any(|row| row.len() != columns) {
        bail!("unexpected counts in the test output:\n{text}");
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_tests_become_sorted_rows() {
        let text =
            "running 2 tests\ncompared|pvrdma|2|3|4|5|6\ntest it ... compared|mlx5|1|2|3|4|5\n";
        let found = rows(text).expect("rows");
        assert_eq!(
            found,
            [
                ["mlx5", "1", "2", "3", "4", "5"],
                ["pvrdma", "2", "3", "4", "5", "6"]
            ]
        );
        assert!(rows("compared|mlx5|1|2").is_err());
        assert!(rows("running 2 tests").is_err());
    }
}
