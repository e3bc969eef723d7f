//! The notes on direct dependencies of the workspace, and the counts of all.

use anyhow::{Result, bail};
use cargo_metadata::Target;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

use crate::tools::{self, WORKSPACES};
use crate::workspace::Workspace;

/// The page of notes, one row for each crate.
const PAGE: &str = "docs/dependencies.md";
/// The rules of `cargo deny`, with their exceptions.
const RULES: &str = "deny.toml";

/// Checks notes, licences, origins and advisories; returns the counts.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let crates = all(workspace)?;
    let direct = check(workspace)?;
    tools::deny(workspace)?;
    tools::advisories(workspace)?;
    let rules: Rules = workspace.read_toml(RULES)?;
    Ok(summary(&crates, direct, &rules))
}

/// Fails unless the page has one row for each direct dependency, and none for others; returns their
/// number.
pub(crate) fn check(workspace: &Workspace) -> Result<usize> {
    let page = workspace.read(PAGE)?;
    let mut noted = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // The first cell is the text left of the first bar.
        let [_, name, rest @ ..] = &cells[..] else {
            continue;
        };
        if let Some(name) = name
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        {
            if !noted.insert(name.to_owned()) {
                bail!("{PAGE} has two rows for {name}");
            }
            if rest.iter().take(2).any(|cell| cell.is_empty()) {
                bail!("{PAGE} has an incomplete row for {name}");
            }
        }
    }
    let named = workspace.direct_dependencies()?;
    let differ = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
        these
            .difference(those)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (missing, gone) = (differ(&named, &noted), differ(&noted, &named));
    if !missing.is_empty() || !gone.is_empty() {
        bail!("{PAGE} has no row for [{missing}], and surplus rows for [{gone}]");
    }
    Ok(named.len())
}

/// The parts of the rules that are counted.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    advisories: Advisories,
}

#[derive(Deserialize)]
struct Licenses {
    exceptions: Vec<toml::Value>,
}

#[derive(Deserialize)]
struct Advisories {
    ignore: Vec<toml::Value>,
}

/// The crates of others, by cargo's package ids; true for one with code that runs at build time.
type Crates = BTreeMap<String, bool>;

/// Returns the crates in the lock files of all workspaces.
fn all(workspace: &Workspace) -> Result<Crates> {
    let mut crates = Crates::new();
    for manifest in WORKSPACES {
        let packages = workspace.locked(manifest)?.packages.into_iter();
        for package in packages.filter(|package| package.source.is_some()) {
            let runs = |target: &Target| target.is_custom_build() || target.is_proc_macro();
            let runs_at_build = package.targets.iter().any(runs);
            crates.insert(package.id.repr, runs_at_build);
        }
    }
    Ok(crates)
}

/// Returns the summary of a run without findings.
fn summary(crates: &Crates, direct: usize, rules: &Rules) -> String {
    let run = crates.values().filter(|runs_at_build| **runs_at_build);
    format!(
        "{} crates, counted by versions, in {} lock files: {direct} direct ones, each with a note, and {} indirect ones; {} run code \
         at build time. All were checked against the current advisories. Exceptions in [{RULES}](../{RULES}): {} of licences, {} of advisories.\n",
        crates.len(),
        WORKSPACES.len(),
        crates.len() - direct,
        run.count(),
        rules.licenses.exceptions.len(),
        rules.advisories.ignore.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_exceptions_are_counted() {
        let crates = [("a 1", false), ("a 2", true), ("b 1", false)];
        let crates = crates.map(|(id, runs)| (id.to_owned(), runs));
        let rules = "[licenses]\nexceptions = [1, 2, 3]\n[advisories]\nignore = [1, 2]\n";
        let rules = toml::from_str(rules).expect("rules");
        let summary = summary(&crates.into(), 2, &rules);
        let start = "3 crates, counted by versions, in 3 lock files: 2 direct ones, each with a note, and 1 indirect ones; 1 run";
        assert!(summary.starts_with(start), "{summary}");
        let end = "3 of licences, 2 of advisories.\n";
        assert!(summary.ends_with(end), "{summary}");
    }
}
