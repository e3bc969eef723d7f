//! The notes on direct dependencies of the workspace, and the list of indirect ones.

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use cargo_metadata::semver::Version;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use super::Parts;
use crate::tools::{self, WORKSPACES};
use crate::workspace::Workspace;

/// The page of notes, one row for each crate.
const PAGE: &str = "docs/dependencies.md";
/// The name of its generated section, and of the proof that writes the section.
const NAME: &str = "dependencies";
/// The rules of `cargo deny`, with their exceptions.
const RULES: &str = "deny.toml";
/// The most crates that a row names as dependents.
const NAMED: usize = 3;

/// Fails unless notes and list on the page match the dependencies.
///
/// The page must have a note on each direct dependency and on no other crate.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    check_notes(workspace)?;
    let page = fs::read_to_string(workspace.root().join(PAGE)).context(PAGE)?;
    let published = Parts::of(&page, NAME).context(PAGE)?.section;
    if published != Graph::of_all(workspace)?.table()? {
        bail!(
            "{PAGE} does not match the lock files: update it with `cargo xtask harden --only {NAME}`"
        );
    }
    Ok(())
}

/// Writes the list and checks notes, licences, origins and advisories; returns the counts.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let graph = Graph::of_all(workspace)?;
    super::replace_in(workspace, PAGE, NAME, &graph.table()?)?;
    check_notes(workspace)?;
    tools::deny(workspace)?;
    tools::advisories(workspace)?;
    let text = fs::read_to_string(workspace.root().join(RULES)).context(RULES)?;
    let rules: Rules = toml::from_str(&text).context(RULES)?;
    Ok(graph.summary(&rules))
}

/// Fails unless the page has one row for each direct dependency, and none for others.
fn check_notes(workspace: &Workspace) -> Result<()> {
    let page = fs::read_to_string(workspace.root().join(PAGE)).context(PAGE)?;
    let Parts { before, after, .. } = Parts::of(&page, NAME).context(PAGE)?;
    let mut noted = BTreeSet::new();
    for line in before.lines().chain(after.lines()) {
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
            if rest.iter().take(3).any(|cell| cell.is_empty()) {
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
    name: String,
    version: Version,
    licence: String,
    /// The parts of the crate that run at build time.
    runs: &'static str,
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
            let runs = match (has("custom-build"), has("proc-macro")) {
                (false, false) => "no",
                (true, false) => "build script",
                (false, true) => "macro",
                (true, true) => "build script, macro",
            };
            let licence = match (package.license, package.license_file) {
                (Some(name), _) => name,
                (None, Some(file)) => format!("file {file}"),
                (None, None) => "none".to_owned(),
            };
            self.0.entry(package.id.repr).or_insert(Crate {
                name: package.name.to_string(),
                version: package.version,
                licence,
                runs,
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

    /// Returns the indirect dependencies, each with the direct ones that lead to it.
    ///
    /// No other direct dependency is on the path between them.
    fn behind(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let direct = self.direct();
        let mut behind: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .iter()
            .filter(|(id, package)| !package.ours && !direct.contains(id.as_str()))
            .map(|(id, _)| (id.as_str(), BTreeSet::new()))
            .collect();
        for package in direct.iter().filter_map(|id| self.0.get(*id)) {
            let mut left = vec![package];
            let mut met = BTreeSet::new();
            while let Some(next) = left.pop() {
                for id in &next.needs {
                    if let Some(by) = behind.get_mut(id.as_str())
                        && met.insert(id)
                    {
                        by.insert(&package.name);
                        left.extend(self.0.get(id));
                    }
                }
            }
        }
        behind
    }

    /// Returns a table with one row for each crate and version without a note.
    fn table(&self) -> Result<String> {
        let behind = self.behind();
        let mut rows: Vec<_> = behind
            .iter()
            .filter_map(|(id, by)| Some((self.0.get(*id)?, by)))
            .collect();
        rows.sort_by_key(|(package, _)| (&package.name, &package.version));
        let mut table = String::from(
            "| crate | version | licence | build script or macro | brought by |\n|---|---|---|---|---|\n",
        );
        for (package, by) in rows {
            let Crate {
                name,
                version,
                licence,
                runs,
                ..
            } = package;
            ensure!(!by.is_empty(), "no package depends on {name} {version}");
            let mut named: Vec<String> =
                by.iter().take(NAMED).map(|it| format!("`{it}`")).collect();
            if by.len() > NAMED {
                named.push(format!("and {} more", by.len() - NAMED));
            }
            let named = named.join(", ");
            writeln!(
                table,
                "| `{name}` | {version} | {licence} | {runs} | {named} |"
            )?;
        }
        Ok(table)
    }

    /// Returns the summary of a run without findings.
    fn summary(&self, rules: &Rules) -> String {
        let (direct, behind) = (self.direct().len(), self.behind().len());
        let run = self
            .0
            .values()
            .filter(|package| !package.ours && package.runs != "no");
        format!(
            "{} crates, counted by versions, in {} lock files: {direct} direct ones, each with a note, and {behind} indirect ones; {} run code \
             at build time. All were checked against the current advisories. Exceptions in [{RULES}](../{RULES}): {} of licences, {} of advisories.\n",
            direct + behind,
            WORKSPACES.len(),
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
            let (name, version) = id.split_once(' ').expect("a name and a version");
            let package = Crate {
                name: name.to_owned(),
                version: version.parse().expect("a version"),
                licence: "MIT".to_owned(),
                runs: if *runs == "macro" { "macro" } else { "no" },
                ours: version == "0.0.0",
                needs: needs.iter().map(|it| (*it).to_owned()).collect(),
            };
            ((*id).to_owned(), package)
        });
        Graph(all.collect())
    }

    #[test]
    fn crates_without_a_note_name_the_nearest_with_one() {
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
        let expected = "| crate | version | licence | build script or macro | brought by |\n|---|---|---|---|---|\n\
            | `between` | 1.0.0 | MIT | macro | `a` |\n\
            | `d` | 1.0.0 | MIT | no | `a` |\n\
            | `last` | 1.0.0 | MIT | no | `a` |\n\
            | `many` | 9.0.0 | MIT | no | `c` |\n\
            | `many` | 10.0.0 | MIT | no | `a`, `b`, `c`, and 2 more |\n";
        assert_eq!(graph.table().expect("a table"), expected);
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

    #[test]
    fn crates_that_nothing_depends_on_are_refused() {
        let graph = graph(&[("ours 0.0.0", "no", &[]), ("lost 1.0.0", "no", &[])]);
        assert!(graph.table().is_err());
    }
}
