//! Checks that every feature combination builds.
//!
//! Also checks that the core and the mmio driver need neither std nor an allocator.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use xshell::cmd;

use crate::lanes::side_by_side;
use crate::workspace::Workspace;

const CORE: &str = "dat-core";
const SHARED_MEMORY: &str = "dat-rsm";
const HOST: &str = "dat-host";
const ROCE: &str = "backend-roce";
const BARE: &str = "no-std";
/// Replaces the atomics; only the fuzz targets use it.
const FUZZ_SCHED: &str = "fuzz_sched";

/// Lints the crates with features under no feature, each feature and all features.
pub(crate) fn check_each(workspace: &Workspace) -> Result<()> {
    let packages = [CORE, SHARED_MEMORY, ROCE, HOST];
    check_subsets(workspace, &packages, |chosen, all| {
        chosen <= 1 || chosen == all
    })
    .map(|_counts| ())
}

/// Lints the crates for firmware under each subset of features; returns a table of counts.
pub(crate) fn check_combinations(workspace: &Workspace) -> Result<String> {
    check_subsets(workspace, &[CORE, SHARED_MEMORY, ROCE], |_, _| true)
}

/// Lints the crate for host programs under each subset of features; returns a table of counts.
pub(crate) fn check_host_combinations(workspace: &Workspace) -> Result<String> {
    check_subsets(workspace, &[HOST], |_, _| true)
}

/// Lints the subsets for which `wanted` accepts their size and the number of features.
fn check_subsets(
    workspace: &Workspace,
    packages: &[&str],
    wanted: fn(usize, usize) -> bool,
) -> Result<String> {
    let mut table =
        String::from("| crate | features | combinations without a warning |\n|---|---|---|\n");
    for package in packages {
        let Checked {
            features,
            combinations,
        } = check_subsets_of(workspace, package, wanted)?;
        println!("{package}: {combinations} combinations of {features} features");
        table.push_str(&format!("| {package} | {features} | {combinations} |\n"));
    }
    Ok(table)
}

/// The number of features of a crate, and the number of combinations that were linted.
struct Checked {
    features: usize,
    combinations: usize,
}

fn check_subsets_of(
    workspace: &Workspace,
    package: &str,
    wanted: fn(usize, usize) -> bool,
) -> Result<Checked> {
    let member = workspace
        .member(package)
        .with_context(|| format!("the workspace has no {package}"))?;
    let names = additive(member.features.keys().map(String::as_str));
    let mut combinations = subsets(&names);
    combinations.retain(|combination| wanted(combination.len(), names.len()));
    let implied = |name: &str| member.features.get(name).map_or(&[][..], Vec::as_slice);
    drop_equal(&mut combinations, implied);
    if member.features.contains_key(FUZZ_SCHED) {
        combinations.push(vec![FUZZ_SCHED, "spin"]);
    }
    side_by_side(workspace, &combinations, |shell, folder, combination| {
        let features = combination.join(",");
        println!("  {package} with [{features}]");
        let scope = [
            "--package",
            package,
            "--no-default-features",
            "--features",
            &features,
        ];
        cmd!(
            shell,
            "cargo clippy --quiet --target-dir {folder} {scope...} -- --deny warnings"
        )
        .quiet()
        .run()?;
        Ok(())
    })?;
    Ok(Checked {
        features: names.len(),
        combinations: combinations.len(),
    })
}

/// Builds a static library without std around core and mmio driver, under no feature and under all
/// features for bare machines.
///
/// The library brings its own panic handler and no allocator. If std were linked, the compiler
/// would find two handlers; if alloc were linked, it would miss the allocator. A feature that
/// needed one of them would need it among all features, too.
pub(crate) fn check_bare(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let bare = workspace
        .member(BARE)
        .context("the workspace has no package no-std")?;
    let names = additive(bare.features.keys().map(String::as_str));
    let together = names.join(",");
    for features in ["", &together] {
        println!("  static library without std, {CORE} with [{features}]");
        let scope = [
            "--package",
            BARE,
            "--profile",
            "bare",
            "--features",
            features,
        ];
        cmd!(shell, "cargo build --quiet {scope...}")
            .quiet()
            .run()?;
    }
    Ok(())
}

fn additive<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names
        .filter(|name| !matches!(*name, "default" | FUZZ_SCHED))
        .collect();
    names.sort_unstable();
    names
}

/// Keeps one combination of those that enable the same features, because some imply others.
fn drop_equal<'a>(combinations: &mut Vec<Vec<&'a str>>, implied: impl Fn(&str) -> &'a [String]) {
    let mut seen = BTreeSet::new();
    combinations.retain(|combination| {
        let mut enabled = BTreeSet::new();
        let mut pending = combination.clone();
        while let Some(name) = pending.pop() {
            if enabled.insert(name) {
                pending.extend(implied(name).iter().map(String::as_str));
            }
        }
        seen.insert(enabled)
    });
}

fn subsets<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut subsets = vec![Vec::new()];
    for name in names {
        for index in 0..subsets.len() {
            let mut larger = subsets[index].clone();
            larger.push(*name);
            subsets.push(larger);
        }
    }
    subsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_appears_once() {
        assert_eq!(
            subsets(&["a", "b"]),
            [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]
        );
        assert_eq!(subsets(&["a", "b", "c", "d", "e"]).len(), 32);
    }

    #[test]
    fn implied_features_make_no_further_combination() {
        let implying = [String::from("a"), String::from("dep:x")];
        let mut combinations = subsets(&["a", "b"]);
        drop_equal(&mut combinations, |name| match name {
            "b" => &implying,
            _ => &[],
        });
        assert_eq!(combinations, [vec![], vec!["a"], vec!["b"]]);
    }

    #[test]
    fn features_that_are_not_additive_are_left_out() {
        assert_eq!(
            additive(["std", "default", "fuzz_sched", "log"].into_iter()),
            ["log", "std"]
        );
    }
}
