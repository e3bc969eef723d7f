//! The table at the head of the page: each proof, the part that tells of it, and where it held last.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;

use super::{AT, FAILED, PAGE, PROOFS, replace, section};
use crate::workspace::Workspace;

/// The name of its section.
pub(super) const NAME: &str = "summary";

/// Writes it anew, of what the page says now.
pub(super) fn write(workspace: &Workspace) -> Result<()> {
    replace(workspace, NAME, &table(&page(workspace)?)?)
}

/// Refuses a table that is not of what the page says.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    ensure!(
        section(workspace, NAME)? == table(&page(workspace)?)?,
        "the table at the head of {PAGE} is not of its sections; every run of `cargo xtask harden` writes it anew"
    );
    Ok(())
}

fn page(workspace: &Workspace) -> Result<String> {
    fs::read_to_string(workspace.root().join(PAGE)).context(PAGE)
}

fn table(page: &str) -> Result<String> {
    let mut table = String::from("| | what is tried | `--only` | held at |\n|---|---|---|---|\n");
    for proof in &PROOFS {
        let (begin, end) = super::marks(proof.name);
        // Those without a section count nothing: they hold, or the command fails.
        let parts = page.split_once(&begin).filter(|_| proof.name != NAME);
        let Some((before, after)) = parts else {
            continue;
        };
        let (rows, _) = after
            .split_once(&end)
            .with_context(|| format!("{PAGE} does not end {}", proof.name))?;
        let heading = before
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("## "));
        let heading = heading.with_context(|| format!("{} is under no heading", proof.name))?;
        let _ = writeln!(
            table,
            "| [{heading}](#{}) | {} | `{}` | {} |",
            anchor(heading),
            proof.what,
            proof.name,
            held(rows)
        );
    }
    Ok(table)
}

/// What links to a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '-' => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

/// The revision at which a section says that its proof held.
fn held(section: &str) -> String {
    let said = |begins: &str| {
        let line = section.lines().find_map(|line| line.strip_prefix(begins))?;
        Some(line.trim().trim_end_matches('.').to_owned())
    };
    match (said(FAILED), said(AT)) {
        (Some(revision), _) => format!("**failed** at {revision}"),
        (None, Some(revision)) => revision,
        (None, None) => "each row says".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_proof_with_a_section_has_a_row() {
        let (begin, end) = super::super::marks("models");
        let page = |rows: &str| format!("# Page\n\n## Threads, in 2 ways\n\n{begin}{rows}{end}");
        let row = |rows: &str| {
            table(&page(rows))
                .unwrap()
                .lines()
                .nth(2)
                .unwrap()
                .to_owned()
        };
        let good = row("| a | 1 |\n\nAt revision abc.\n");
        assert!(
            good.starts_with("| [Threads, in 2 ways](#threads-in-2-ways) | threads"),
            "{good}"
        );
        assert!(good.ends_with("| `models` | abc |"), "{good}");
        let bad = row("| a | 1 |\n\nAt revision abc.\nIt failed at revision def.\n");
        assert!(bad.ends_with("| **failed** at def |"), "{bad}");
        assert!(row("| a | abc |\n").ends_with("| each row says |"));
        // One row, and the two lines of the head.
        assert_eq!(table(&page("")).unwrap().lines().count(), 3);
        assert!(table(&format!("## It\n{begin}")).is_err());
    }
}
