//! The notes on direct dependencies of the workspace, and the counts of all.

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;
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
    let graph = Graph::of_all(workspace)?;
    check(workspace)?;
    tools::deny(workspace)?;
    tools::advisories(workspace)?;
    let rules: Rules = workspace.read_toml(RULES)?;
    Ok(graph.summary(&rules))
}

/// Fails unless the page has one row for each direct dependency, and none for others.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
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
    Ok(())
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

/// A crate of one version.
struct Crate {
    /// True if it has a build script or is a procedural macro.
    runs_at_build: bool,
    ours: bool,
    /// The dependencies, by cargo's package ids.
    needs: BTreeSet<String>,
}

/// All crates, by cargo's package ids.
#[derive(Default)]
struct Graph(BTreeMap<String, Crate>);

impl Graph {
    /// Returns the crates in the lock files of all workspaces.
    fn of_all(workspace: &Workspace) -> Result<Self> {
        let mut graph = Self::default();
        for manifest in WORKSPACES {
            graph.add(workspace.locked(manifest)?)?;
        }
        Ok(graph)
    }

    fn add(&mut self, metadata: Metadata) -> Result<()> {
        let resolved = metadata
            .resolve
            .context("cargo metadata reports no dependencies")?;
        for package in metadata.packages {
            let has = |kind: &str| {
                let mut targets = package.targets.iter();
                targets.any(|target| target.kind.iter().any(|it| it.to_string() == kind))
            };
            self.0.entry(package.id.repr).or_insert(Crate {
                runs_at_build: has("custom-build") || has("proc-macro"),
                ours: package.source.is_none(),
                needs: BTreeSet::new(),
            });
        }
        // Workspaces request different features: the result is the union of a crate's dependencies.
        for node in resolved.nodes {
            let known = self.0.get_mut(&node.id.repr);
            let known =
                known.with_context(|| format!("cargo metadata does not contain {}", node.id))?;
            let needs = node.dependencies.into_iter().map(|id| id.repr);
            known.needs.extend(needs);
        }
        Ok(())
    }

    /// Returns the direct dependencies of our packages, which have notes.
    fn direct(&self) -> BTreeSet<&str> {
        let ours = self.0.values().filter(|package| package.ours);
        ours.flat_map(|package| &package.needs)
            .filter(|id| self.0.get(*id).is_some_and(|package| !package.ours))
            .map(String::as_str)
            .collect()
    }

    /// Returns the summary of a run without findings.
    fn summary(&self, rules: &Rules) -> String {
        let others = self.0.values().filter(|package| !package.ours).count();
        let direct = self.direct().len();
        let run = self
            .0
            .values()
            .filter(|package| !package.ours && package.runs_at_build);
        format!(
            "{} crates, counted by versions, in {} lock files: {direct} direct ones, each with a note, and {} indirect ones; {} run code \
             at build time. All were checked against the current advisories. Exceptions in [{RULES}](../{RULES}): {} of licences, {} of advisories.\n",
            others,
            WORKSPACES.len(),
            others - direct,
            run.count(),
            rules.licenses.exceptions.len(),
            rules.advisories.ignore.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a graph of crates `NAME VERSION` and their needs; our packages have version 0.0.0.
    fn graph(crates: &[(&str, &str, &[&str])]) -> Graph {
        let all = crates.iter().map(|(id, runs, needs)| {
            let package = Crate {
                runs_at_build: *runs == "macro",
                ours: id.ends_with(" 0.0.0"),
                needs: needs.iter().map(|it| (*it).to_owned()).collect(),
            };
            ((*id).to_owned(), package)
        });
        Graph(all.collect())
    }

    #[test]
    fn versions_are_counted_by_their_distance() {
        let graph = graph(&[
            ("ours 0.0.0", "no", &["also 0.0.0", "a 1.0.0", "b 1.0.0"]),
            ("also 0.0.0", "no", &["c 1.0.0", "d 2.0.0", "e 1.0.0"]),
            ("a 1.0.0", "no", &["many 10.0.0", "between 1.0.0"]),
            ("b 1.0.0", "no", &["many 10.0.0"]),
            ("c 1.0.0", "no", &["many 10.0.0", "many 9.0.0"]),
            ("d 2.0.0", "no", &["many 10.0.0"]),
            // Dependents of a noted crate are not listed for the dependencies of that crate.
            ("e 1.0.0", "no", &["many 10.0.0", "a 1.0.0"]),
            // A cycle, as dev-dependencies make them.
            ("between 1.0.0", "macro", &["last 1.0.0", "between 1.0.0"]),
            ("last 1.0.0", "no", &["between 1.0.0", "d 1.0.0"]),
            // Another version than the direct dependency.
            ("d 1.0.0", "no", &[]),
            ("many 9.0.0", "no", &[]),
            ("many 10.0.0", "no", &[]),
        ]);
        let rules = "[licenses]\nexceptions = [1, 2, 3]\n[advisories]\nignore = [1, 2]\n";
        let summary = graph.summary(&toml::from_str(rules).expect("rules"));
        assert!(
            summary.starts_with("10 crates, counted by versions, in 3 lock files: 5 direct"),
            "{summary}"
        );
        assert!(
            summary.contains("and 5 indirect ones; 1 run code"),
            "{summary}"
        );
        assert!(
            summary.ends_with("3 of licences, 2 of advisories.\n"),
            "{summary}"
        );
    }
}
