//! The interfaces of the published crates, compared with those of an earlier revision.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Package, Target};
use xshell::cmd;

use crate::packages;
use crate::tools;
use crate::workspace::Workspace;

/// Files and programs of the system that a build with RDMA devices needs.
const RDMA_CORE: [&str; 4] = [
    "/usr/include/infiniband/verbs.h",
    "/usr/include/rdma/rdma_cma.h",
    packages::LIBCLANG,
    "pkg-config",
];

/// Compares the interface of each published library with the baseline; fails if one breaks.
///
/// A change that breaks an interface on purpose, or adds a package, moves the baseline: to a
/// revision with the new interface, in the next change.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let baseline = baseline(workspace)?;
    let revision = format!("{baseline}^{{commit}}");
    cmd!(shell, "git cat-file -e {revision}")
        .quiet()
        .run()
        .with_context(|| format!("this clone lacks the baseline {baseline}; fetch its history"))?;
    packages::install_for(shell, RDMA_CORE)?;
    let program = tools::SEMVER.install(workspace)?;
    let mut broken = Vec::new();
    for library in libraries(workspace) {
        let name = library.name.as_str();
        let features = documented(library);
        println!("{name} with [{}], against {baseline}", features.join(","));
        let features = features.iter().flat_map(|feature| ["--features", feature]);
        let scope = ["--package", name, "--baseline-rev", baseline];
        let compared = cmd!(
            shell,
            "{program} semver-checks {scope...} --default-features {features...}"
        )
        .quiet()
        .run();
        if compared.is_err() {
            broken.push(name);
        }
    }
    if !broken.is_empty() {
        bail!(
            "other interfaces than at {baseline} (see above): {}; programs that use them may not compile",
            broken.join(", ")
        );
    }
    Ok(())
}

/// Returns the revision that the manifest of the workspace names.
fn baseline(workspace: &Workspace) -> Result<&str> {
    let named = workspace.table().pointer("/semver/baseline");
    let named = named.and_then(|revision| revision.as_str());
    named.context("Cargo.toml has no baseline in [workspace.metadata.semver]")
}

/// Returns the published packages with an interface for Rust: libraries that are no C libraries,
/// and no parts of a program.
fn libraries(workspace: &Workspace) -> Vec<&Package> {
    let mut libraries = workspace.members();
    libraries.retain(|package| {
        let any = |is: fn(&Target) -> bool| package.targets.iter().any(is);
        package.publish.is_none() && any(Target::is_lib) && !any(Target::is_bin)
    });
    libraries
}

/// Returns the features with which docs.rs documents a package: those of its stable interface.
fn documented(package: &Package) -> Vec<&str> {
    let features = package.metadata.pointer("/docs/rs/features");
    let features = features.and_then(|list| list.as_array());
    features
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_for_rust_are_compared() {
        let workspace = Workspace::load().expect("workspace");
        let names: Vec<&str> = libraries(&workspace)
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "backend-mmio",
                "backend-mock",
                "backend-roce",
                "backend-verbs",
                "dat-core",
                "dat-devices",
                "dat-ffi",
                "dat-host",
                "dat-queues",
                "dat-rsm",
                "dat-storage",
                "mmio-model"
            ]
        );
    }

    #[test]
    fn documented_features_exist() {
        let workspace = Workspace::load().expect("workspace");
        let mut count = 0;
        for package in libraries(&workspace) {
            for feature in documented(package) {
                assert!(
                    package.features.contains_key(feature),
                    "{} has no feature {feature}",
                    package.name
                );
                count += 1;
            }
        }
        assert!(count > 10, "{count}");
    }
}
