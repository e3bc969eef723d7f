//! The table at the head of the page: each proof, its section and its revision.
//!
//! The revision is the one where the proof last held.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;

use super::{AT, FAILED, PAGE, PROOFS, replace, section, task};
use crate::sections::Parts;
use crate::workspace::Workspace;

/// The name of the table's section.
pub(super) const NAME: &str = "summary";

/// Writes the table from the current page.
pub(super) fn write(workspace: &Workspace) -> Result<()> {
    replace(workspace, NAME, &table(&workspace.read(PAGE)?)?)
}

/// Refuses a table that differs from the page's sections.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    ensure!(
        section(workspace, NAME)? == table(&workspace.read(PAGE)?)?,
        "the table at the top of {PAGE} does not match its sections; run `cargo xtask harden` to update it"
    );
    Ok(())
}

fn table(page: &str) -> Result<String> {
    let mut table = String::from("| section | `--only` | last success |\n|---|---|---|\n");
    for proof in PROOFS.iter().filter(|proof| proof.name != NAME) {
        let parts = Parts::of(page, &task(proof.name)).context(PAGE)?;
        let heading = parts.before.lines().rev().find_map(|line| {
            let heading = line.strip_prefix("### ");
            heading.or_else(|| line.strip_prefix("## "))
        });
        let heading =
            heading.with_context(|| format!("the section {} has no heading", proof.name))?;
        let _ = writeln!(
            table,
            "| [{heading}](#{}) | `{}` | {} |",
            anchor(heading),
            proof.name,
            proved_revision(parts.section)
        );
    }
    Ok(table)
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '-' => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

/// Returns the revision at which a section says that its proof held.
fn proved_revision(section: &str) -> String {
    let revision_after = |begins: &str| {
        let line = section.lines().find_map(|line| line.strip_prefix(begins))?;
        Some(line.trim().trim_end_matches('.').to_owned())
    };
    match (revision_after(FAILED), revision_after(AT)) {
        (Some(revision), _) => format!("**failed** at {revision}"),
        (None, Some(revision)) => revision,
        (None, None) => "not run yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::marks;

    /// Returns a page with these rows in one section and nothing in the others.
    fn page(name: &str, rows: &str) -> String {
        let mut page = String::from("# Page\n");
        for proof in PROOFS.iter().filter(|proof| proof.name != NAME) {
            let (begin, end) = marks(&task(proof.name));
            let rows = if proof.name == name { rows } else { "" };
            let _ = write!(
                page,
                "\n## Of {0}, in 2 ways\n\n{begin}{rows}{end}",
                proof.name
            );
        }
        page
    }

    fn row(page: &str, name: &str) -> String {
        let table = table(page).unwrap();
        let label = format!("| `{name}` |");
        table
            .lines()
            .find(|line| line.contains(&label))
            .unwrap()
            .to_owned()
    }

    #[test]
    fn each_proof_with_a_section_has_a_row() {
        let row = |rows: &str| row(&page("models", rows), "models");
        let good = row("| a | 1 |\n\nAt revision abc.\n");
        assert!(
            good.starts_with("| [Of models, in 2 ways](#of-models-in-2-ways) | `models`"),
            "{good}"
        );
        assert!(good.ends_with("| `models` | abc |"), "{good}");
        let bad = row("| a | 1 |\n\nAt revision abc.\nIt failed at revision def.\n");
        assert!(bad.ends_with("| **failed** at def |"), "{bad}");
        assert!(row("").ends_with("| not run yet |"));
        // One row for each proof except the table itself, and the two lines of the head.
        let all = table(&page("models", "")).unwrap();
        assert_eq!(all.lines().count(), PROOFS.len() + 1);
        let (begin, _) = marks(&task("models"));
        let cut = page("models", "").replace(&begin, "");
        assert!(table(&cut).is_err());
    }

    #[test]
    fn a_row_leads_to_the_nearest_heading() {
        let page = page("models", "").replace("## Of models", "## Above\n\n### Of models");
        let row = row(&page, "models");
        assert!(row.starts_with("| [Of models, in 2 ways](#"), "{row}");
    }
}
