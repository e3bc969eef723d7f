//! Sets `DAT_VERSION`: the version and, in the project's repository, the commit and its date.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = commit().map_or_else(String::new, |commit| format!(" ({commit})"));
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=DAT_VERSION={version}{commit}");
}

/// Returns the commit, marked if the tree is changed, and its date.
///
/// `None` without git. A published crate may lie in the repository of another project, so only one
/// in the folder above counts.
fn commit() -> Option<String> {
    if !Path::new("../.git").exists() {
        return None;
    }
    // HEAD names a branch, and its log changes with every commit. A missing file would run this
    // script in every build.
    let files = git(&["rev-parse", "--git-path", "HEAD", "--git-path", "logs/HEAD"])?;
    let files = files.lines().map(|file| Path::new("..").join(file));
    // The mark follows the sources, whose changes compile this package in any case.
    let sources = Path::new("..").read_dir().ok()?.flatten();
    let sources = sources.filter(|folder| {
        let name = folder.file_name();
        let name = name.to_string_lossy();
        name.starts_with("dat-") || name.starts_with("backend-")
    });
    let sources = sources.map(|folder| folder.path().join("src"));
    for path in files.chain(sources).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let commit = git(&[
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=10",
        "--dirty",
    ])?;
    let date = git(&["show", "--no-patch", "--format=%cs"])?;
    Some(format!("{commit} {date}"))
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // Without locks, it does not disturb a git that runs at the same time.
    let git = git
        .args(["-C", ".."])
        .args(arguments)
        .env("GIT_OPTIONAL_LOCKS", "0");
    let output = git.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
