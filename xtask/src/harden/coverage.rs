//! How much of the core the seeds of the fuzz targets run.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use xshell::cmd;

use crate::tools;
use crate::workspace::Workspace;

/// The code that is looked at.
const SOURCES: &str = "dat-core/src";

/// What `llvm-cov export` tells.
#[derive(Deserialize)]
struct Told {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    filename: String,
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    lines: Lines,
}

/// Lines with code, and those of them that were run.
#[derive(Clone, Copy, Default, Deserialize)]
struct Lines {
    count: u64,
    covered: u64,
}

impl Lines {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.covered += more.covered;
    }

    fn row(self, name: &str) -> String {
        let Self { count, covered } = self;
        // There are fewer lines than an f64 can count.
        let share = 100.0 * covered as f64 / count.max(1) as f64;
        format!("| {name} | {count} | {covered} | {share:.1} % |\n")
    }
}

/// Runs the seeds of all targets and counts the lines of the core that they ran, by module.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add --toolchain nightly llvm-tools").run()?;
    let profiles = tools::profiles(workspace)?;
    let host = tools::host(workspace)?;
    let root = cmd!(shell, "rustup run nightly rustc --print sysroot")
        .quiet()
        .read()?;
    let programs = Path::new(&root).join("lib/rustlib").join(host).join("bin");
    let (merge, export) = (programs.join("llvm-profdata"), programs.join("llvm-cov"));
    let counts = workspace.target().join("tmp/coverage.profdata");
    let single: Vec<_> = profiles.iter().map(|profile| &profile.counts).collect();
    cmd!(
        shell,
        "{merge} merge --sparse --output {counts} {single...}"
    )
    .run()?;
    let objects = profiles
        .iter()
        .flat_map(|profile| ["--object".as_ref(), profile.program.as_os_str()]);
    let objects: Vec<_> = objects.collect();
    let sources = workspace.root().join(SOURCES);
    let told = cmd!(
        shell,
        "{export} export --summary-only --instr-profile {counts} {objects...} --sources {sources}"
    )
    .quiet()
    .read()?;
    let told: Told = serde_json::from_str(&told).context("what llvm-cov tells")?;
    shell.remove_path(workspace.root().join("fuzz/coverage"))?;
    Ok(table(
        &sources,
        told.data.into_iter().flat_map(|data| data.files),
    ))
}

/// A row for each module, and one for all.
fn table(sources: &Path, files: impl Iterator<Item = File>) -> String {
    let mut modules: BTreeMap<String, Lines> = BTreeMap::new();
    let mut all = Lines::default();
    for file in files {
        let path = Path::new(&file.filename);
        let inside = path.strip_prefix(sources).unwrap_or(path);
        let module = inside.components().next();
        let name = module.map(|module| module.as_os_str().to_string_lossy());
        let name = name.unwrap_or_default();
        let name = name.strip_suffix(".rs").unwrap_or(&name);
        modules
            .entry(name.to_owned())
            .or_default()
            .add(file.summary.lines);
        all.add(file.summary.lines);
    }
    let mut table = String::from("| module | lines | run | |\n|---|---|---|---|\n");
    for (name, lines) in modules {
        let _ = write!(table, "{}", lines.row(&format!("`{name}`")));
    }
    table + &all.row("all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_module_are_counted_together() {
        let file = |name: &str, count, covered| File {
            filename: format!("/w/core/{name}"),
            summary: Summary {
                lines: Lines { count, covered },
            },
        };
        let files = [
            file("event/queue.rs", 10, 5),
            file("id.rs", 4, 4),
            file("event/cno.rs", 10, 6),
        ];
        let table = table(Path::new("/w/core"), files.into_iter());
        let rows = "| `event` | 20 | 11 | 55.0 % |\n| `id` | 4 | 4 | 100.0 % |\n| all | 24 | 15 | 62.5 % |\n";
        assert!(table.ends_with(rows), "{table}");
    }
}
