//! Builds the programs, tests and libraries that a job needs.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Artifact, TargetKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use xshell::cmd;

use super::job::{Build, Job, Target};
use crate::artifacts;
use crate::scope::Scope;
use crate::test_programs;
use crate::workspace::Workspace;

/// Returns a program, test file or shared library of a job, built.
///
/// One that is not optimised is what the tests built or build.
pub(super) fn built(workspace: &Workspace, job: &Job, build: &Build) -> Result<PathBuf> {
    let (name, package) = (build.target.name(), &build.package);
    let own;
    let artifacts = match build.release {
        true => {
            own = optimised(workspace, job, build)?;
            &own
        }
        false => of_tests(workspace)?,
    };
    let manifest = workspace.package(package)?;
    let is_it = |artifact: &&Artifact| {
        artifact.target.name == name && artifact.manifest_path == manifest.manifest_path
    };
    // A package may have a program and a library of one name.
    let found = artifacts.iter().filter(is_it).find_map(|artifact| {
        let is = |kind| artifact.target.kind.contains(&kind);
        let program = artifact.executable.as_ref();
        match build.target {
            Target::Program(_) => program.filter(|_| is(TargetKind::Bin) && !artifact.profile.test),
            Target::Example(_) => program.filter(|_| is(TargetKind::Example)),
            Target::Test(_) => program.filter(|_| is(TargetKind::Test)),
            Target::Library(_) => artifact.filenames.iter().find(is_shared_library),
        }
    });
    let file = found.with_context(|| format!("cargo built no {name} of package {package}"))?;
    Ok(file.into())
}

/// Builds a target as a user would, optimised.
///
/// One call of cargo builds all such shared libraries of a job, as in `cargo xtask install`. Their
/// common dependencies get the union of the features and are built once.
fn optimised(workspace: &Workspace, job: &Job, build: &Build) -> Result<Vec<Artifact>> {
    let built_together = |other: &&Build| {
        let are_libraries = [build, other].map(|one| matches!(one.target, Target::Library(_)));
        std::ptr::eq(*other, build) || are_libraries == [true; 2] && other.release
    };
    let together: Vec<&Build> = job.needs.build.iter().filter(built_together).collect();
    let mut scope = Vec::new();
    for one in together {
        scope.extend(["--package".to_owned(), one.package.clone()]);
        for feature in features(workspace, one)? {
            scope.push(format!("--features={feature}"));
        }
    }
    let name = build.target.name();
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    match build.target {
        Target::Program(_) => command.args(["build", "--bin", name]),
        Target::Test(_) => command.args(["test", "--no-run", "--test", name]),
        Target::Example(_) => command.args(["build", "--example", name]),
        Target::Library(_) => command.args(["build", "--lib"]),
    };
    command.args(scope).arg("--release");
    artifacts::of(
        &mut command,
        &format!("{name} of package {}", build.package),
    )
}

/// Returns what `cargo xtask test --all` builds for its tests, in one call of cargo for all jobs.
pub(super) fn of_tests(workspace: &Workspace) -> Result<&'static [Artifact]> {
    static BUILT: OnceLock<Vec<Artifact>> = OnceLock::new();
    if let Some(built) = BUILT.get() {
        return Ok(built);
    }
    let built = artifacts::of(
        &mut test_programs::build(workspace, Scope::All),
        "the tests",
    )?;
    Ok(BUILT.get_or_init(|| built))
}

/// Returns the features of a build, qualified with the package's name.
fn features(workspace: &Workspace, build: &Build) -> Result<Vec<String>> {
    let name = &build.package;
    let package = workspace.package(name)?;
    let known = |feature: &String| match package.features.contains_key(feature) {
        true => Ok(format!("{name}/{feature}")),
        false => bail!("package {name} has no feature {feature}, which this job needs"),
    };
    build.features.iter().map(known).collect()
}

/// Copies a library of the workspace into a folder, under its soname.
pub(super) fn named(workspace: &Workspace, library: &Path, folder: &Path) -> Result<PathBuf> {
    let shell = &workspace.shell;
    let headers = cmd!(shell, "objdump --private-headers {library}")
        .quiet()
        .read()?;
    let name = headers
        .lines()
        .find_map(|line| line.trim().strip_prefix("SONAME"));
    let name = name.with_context(|| format!("{} has no name", library.display()))?;
    let linked = folder.join(name.trim());
    fs::copy(library, &linked)?;
    Ok(linked)
}

/// Compiles a C program into a folder, and links it with a library in the same folder, if any.
///
/// The program finds the library there, here and in the guest.
pub(super) fn compiled(
    workspace: &Workspace,
    source: &str,
    folder: &Path,
    linked: Option<&Path>,
    links: &[String],
) -> Result<PathBuf> {
    let shell = &workspace.shell;
    let source = workspace.root().join(source);
    let program = folder.join(source.file_stem().context("a source has a name")?);
    let include = workspace.root().join("dat-ffi/include");
    let runpath = "-Wl,-rpath,$ORIGIN";
    let warnings = ["-Wall", "-Wextra", "-Werror"];
    let links = links.iter().map(|name| format!("-l{name}"));
    cmd!(
        shell,
        "cc -std=c11 -D_GNU_SOURCE -O1 -g -pthread {warnings...} -I {include} -o {program} {source} {linked...} {runpath} {links...}"
    )
    .quiet()
    .run()?;
    Ok(program)
}

fn is_shared_library(file: &impl AsRef<Path>) -> bool {
    file.as_ref()
        .extension()
        .is_some_and(|extension| extension == "so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_build_is_named() {
        let workspace = Workspace::load().expect("workspace");
        let refused = |package: &str, feature: &str| {
            let build = Build {
                package: package.to_owned(),
                features: vec![feature.to_owned()],
                release: false,
                target: Target::Program("it".to_owned()),
                sources: Vec::new(),
            };
            features(&workspace, &build)
                .expect_err("refused")
                .to_string()
        };
        assert!(refused("no-such-package", "a").contains("no-such-package"));
        assert!(refused("xtask", "no-such-feature").contains("no-such-feature"));
    }
}
