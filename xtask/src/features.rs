//! Checks that every feature combination builds.
//!
//! `cargo-hack` lists the combinations. Also checks that the core and the mmio driver need neither
//! std nor an allocator.

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::lanes::side_by_side;
use crate::tools;
use crate::workspace::Workspace;

const CORE: &str = "dat-core";
const SHARED_MEMORY: &str = "dat-rsm";
const HOST: &str = "dat-host";
const ROCE: &str = "backend-roce";
const BARE: &str = "no-std";
/// Replaces the atomics; only the fuzz targets use it, with this other feature.
const FUZZ_SCHED: &str = "fuzz_sched";
const WITH_FUZZ_SCHED: &str = "fuzz_sched,spin";

/// Lints the crates with features under no feature, each feature and all features.
pub(crate) fn check_each(workspace: &Workspace) -> Result<()> {
    check_sets(workspace, &[CORE, SHARED_MEMORY, ROCE, HOST], true).map(|_counts| ())
}

/// Lints the crates for firmware under each combination of features; returns a table of counts.
pub(crate) fn check_combinations(workspace: &Workspace) -> Result<String> {
    check_sets(workspace, &[CORE, SHARED_MEMORY, ROCE], false)
}

/// Lints the crate for host programs under each combination; returns a table of counts.
pub(crate) fn check_host_combinations(workspace: &Workspace) -> Result<String> {
    check_sets(workspace, &[HOST], false)
}

fn check_sets(workspace: &Workspace, packages: &[&str], is_short: bool) -> Result<String> {
    let mut table = String::from("| crate | combinations without a warning |\n|---|---|\n");
    for package in packages {
        let mut sets = additive(workspace, package)?;
        if is_short {
            shorten(&mut sets);
        }
        if *package == CORE {
            sets.push(WITH_FUZZ_SCHED.to_owned());
        }
        side_by_side(workspace, &sets, |shell, folder, features| {
            println!("  {package} with [{features}]");
            let scope = ["--no-default-features", "--features", features];
            cmd!(
                shell,
                "cargo clippy --quiet --target-dir {folder} --package {package} {scope...} -- --deny warnings"
            )
            .quiet()
            .run()?;
            Ok(())
        })?;
        println!("{package}: {} combinations", sets.len());
        table.push_str(&format!("| {package} | {} |\n", sets.len()));
    }
    Ok(table)
}

/// Returns the combinations of the features that only add, each once, although some imply others.
fn additive(workspace: &Workspace, package: &str) -> Result<Vec<String>> {
    let program = tools::HACK.install(workspace)?;
    let member = workspace.package(package)?;
    let left_out = ["default", FUZZ_SCHED].into_iter();
    let left_out = left_out.filter(|name| member.features.contains_key(*name));
    let left_out = left_out.flat_map(|name| ["--exclude-features", name]);
    let listed = cmd!(
        workspace.shell,
        "{program} hack check --print-command-list --package {package} --feature-powerset {left_out...}"
    )
    .quiet()
    .read()?;
    let sets = sets(&listed);
    ensure!(sets.len() > 1, "{package} has no features:\n{listed}");
    Ok(sets)
}

/// Reads the features of each command that would be run.
fn sets(listed: &str) -> Vec<String> {
    let features = |line: &str| Some(line.split_once("--features ")?.1.trim().to_owned());
    listed
        .lines()
        .filter(|line| line.contains("--no-default-features"))
        .map(|line| features(line).unwrap_or_default())
        .collect()
}

/// Keeps no feature, each feature, and most features together.
fn shorten(sets: &mut Vec<String>) {
    let count = |set: &str| set.split(',').count();
    let most = sets.iter().map(|set| count(set)).max().unwrap_or_default();
    sets.retain(|set| count(set) == 1 || count(set) == most);
}

/// Builds a static library without std around core and mmio driver, under no feature and under all
/// features for bare machines.
///
/// The library brings its own panic handler and no allocator. If std were linked, the compiler
/// would find two handlers; if alloc were linked, it would miss the allocator. A feature that
/// needed one of them would need it among all features, too.
pub(crate) fn check_bare(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let bare = workspace.package(BARE)?;
    let names: Vec<&str> = bare.features.keys().map(String::as_str).collect();
    for features in ["", &names.join(",")] {
        println!("  static library without std, {CORE} with [{features}]");
        let scope = ["--package", BARE, "--profile", "bare"];
        cmd!(
            shell,
            "cargo build --quiet {scope...} --features {features}"
        )
        .quiet()
        .run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_read_and_shortened() {
        let line = "cargo check --manifest-path a/Cargo.toml --no-default-features";
        let listed = format!(
            "{line}\n{line} --features a\n{line} --features b\n{line} --features a,b\n{line} --features a,b,c\n"
        );
        let mut sets = sets(&listed);
        assert_eq!(sets, ["", "a", "b", "a,b", "a,b,c"]);
        shorten(&mut sets);
        assert_eq!(sets, ["", "a", "b", "a,b,c"]);
    }
}
