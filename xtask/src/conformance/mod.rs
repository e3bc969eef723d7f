//! Finds the tests of each requirement on each backend.

mod catalogue;
mod id;
mod matrix;
mod scan;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;
use xshell::cmd;

use crate::scope::Scope;
use crate::sections::{self, STATUS};
use crate::workspace::Workspace;
use catalogue::Catalogue;
use matrix::{Backends, Exceptions, Matrix};
use scan::Citation;

const PAGES: &[&str] = &[
    "docs/spec/dat-requirements.md",
    "docs/spec/dat-state-machines.md",
    "docs/spec/rsm-requirements.md",
    "docs/spec/rocev2.md",
];
const EXCEPTIONS: &str = "docs/spec/exceptions.toml";
const BACKENDS: &str = "tests/suite/backends.toml";
/// The matrix, in the folder `target`.
const PAGE: &str = "conformance.md";
/// The task that writes the matrix and its counts on the page of counts.
const TASK: &str = "conformance";
const SUITE: &str = "dat-tests";

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Fail if the counts in docs/status.md are not up to date, instead of writing them
    #[arg(long)]
    check: bool,
    /// Take the requirements of backends that need system libraries from docs/status.md
    #[arg(long, conflicts_with = "tests")]
    published: bool,
    /// List the tests of each requirement instead of writing the matrix
    #[arg(long, conflicts_with = "check")]
    tests: bool,
}

impl Options {
    /// Returns options that compare everything with the published counts.
    pub(crate) fn strict() -> Self {
        Self {
            check: true,
            published: false,
            tests: false,
        }
    }

    /// Returns options that compare all columns that need only a Rust toolchain.
    pub(crate) fn short() -> Self {
        Self {
            published: true,
            ..Self::strict()
        }
    }
}

/// Writes the matrix and its counts; fails if a required test is missing.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let catalogue = read_catalogue(workspace)?;
    let exceptions: Exceptions = workspace.read_toml(EXCEPTIONS)?;
    let mut backends: Backends = workspace.read_toml(BACKENDS)?;
    let published = sections::read(workspace, STATUS, TASK)?;
    for backend in &mut backends.backend {
        if options.published && !backend.features.is_empty() {
            backend.published = Some(matrix::published_ids(
                &published,
                &backend.name,
                &catalogue,
            )?);
        } else if let Some(target) = &backend.target {
            backend.listed = listed_tests(workspace, target, &backend.features, options.published)?;
            let unknown = backend.leave_out_exceptions();
            if !unknown.is_empty() {
                bail!(
                    "{BACKENDS}: {} has no test {}",
                    backend.name,
                    unknown.join(", ")
                );
            }
        }
    }
    let citations = read_citations(workspace)?;
    let matrix = Matrix::new(&catalogue, &backends, &exceptions, &citations);

    if options.tests {
        print!("{}", matrix.tests());
    } else {
        fs::write(workspace.target().join(PAGE), matrix.markdown())?;
    }
    println!("{}", matrix.summary());
    if !matrix.faults.is_empty() {
        bail!(
            "the tests and exceptions do not match the catalogues:\n  {}",
            matrix.faults.join("\n  ")
        );
    }
    let counts = matrix.counts();
    if options.check && published != counts {
        bail!("{STATUS} is not up to date; update it with\n  cargo xtask {TASK}");
    }
    if !options.check && !options.tests {
        sections::replace(workspace, STATUS, TASK, &counts)?;
    }
    Ok(())
}

fn read_catalogue(workspace: &Workspace) -> Result<Catalogue> {
    let mut catalogue = Catalogue::default();
    for page in PAGES {
        catalogue
            .add(&workspace.shell.read_file(page)?)
            .context(*page)?;
    }
    catalogue.require_seed()
}

/// Returns the citations in the sources of every member.
fn read_citations(workspace: &Workspace) -> Result<Vec<(PathBuf, Citation)>> {
    let mut files = BTreeSet::new();
    for folder in workspace.member_folders() {
        for entry in WalkDir::new(folder)
            .into_iter()
            .filter_entry(|entry| entry.file_name() != "target")
        {
            let path = entry?.into_path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path);
            }
        }
    }
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(workspace.root()).unwrap_or(&file);
        let citations =
            scan::citations(&workspace.shell.read_file(&file)?).with_context(|| show(name))?;
        found.extend(
            citations
                .into_iter()
                .map(|citation| (name.to_path_buf(), citation)),
        );
    }
    Ok(found)
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Returns the names of the tests that a target of the shared suite lists.
fn listed_tests(
    workspace: &Workspace,
    target: &str,
    features: &[String],
    short: bool,
) -> Result<BTreeSet<String>> {
    let shell = &workspace.shell;
    let features = features.join(",");
    // Where it can, the call finds what the step `build` built.
    let scope = match (short, features.is_empty()) {
        (false, _) => Scope::All.arguments(),
        (true, true) => Scope::Default.arguments(),
        (true, false) => ["--package", SUITE, "--features", &features]
            .map(str::to_owned)
            .to_vec(),
    };
    let output = cmd!(
        shell,
        "cargo test --quiet --test {target} {scope...} -- --list --format terse"
    )
    .read()?;
    Ok(output
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_list_names_known_requirements() {
        let workspace = Workspace::load().expect("workspace");
        let catalogue = read_catalogue(&workspace).expect("catalogue");
        let backends: Backends = workspace.read_toml(BACKENDS).expect("backends");
        let published = sections::read(&workspace, STATUS, TASK).expect("counts");
        let with_features = |backend: &&matrix::Backend| !backend.features.is_empty();
        for backend in backends.backend.iter().filter(with_features) {
            let ids = matrix::published_ids(&published, &backend.name, &catalogue);
            let ids = ids.expect("a list").len();
            assert!(published.contains(&format!("| {} | {ids} |", backend.name)));
        }
    }
}
