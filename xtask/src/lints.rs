//! The lints of all three workspaces: the main one, the fuzzer's and the images'.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use toml::{Table, Value};
use xshell::cmd;

use crate::firmware;
use crate::rooms;
use crate::scope::Scope;
use crate::tools::{self, WORKSPACES};
use crate::workspace::Workspace;

/// Checks that all targets of the default members have no warnings.
pub(crate) fn check_default(workspace: &Workspace) -> Result<()> {
    check_scope(workspace, Scope::Default)
}

/// Checks that all targets of all packages have no warnings.
///
/// Of the images, it checks those that the toolchain in use can build.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    check_scope(workspace, Scope::All)?;
    // As an editor opens a clone: without features, so without the headers of devices.
    cmd!(
        workspace.shell,
        "cargo clippy --workspace --all-targets -- --deny warnings"
    )
    .run()?;
    tools::lint_fuzzer(workspace)?;
    firmware::lint(workspace)
}

fn check_scope(workspace: &Workspace, scope: Scope) -> Result<()> {
    check_equal(workspace.root())?;
    rooms::check(workspace.root())?;
    let scope = scope.linted();
    cmd!(
        workspace.shell,
        "cargo clippy --all-targets {scope...} -- --deny warnings"
    )
    .run()?;
    Ok(())
}

/// Checks that all workspaces have the same table of lints, inherited by every package.
fn check_equal(root: &Path) -> Result<()> {
    let mut first = None;
    for manifest in WORKSPACES {
        let path = root.join(manifest);
        let manifest_toml = read(&path)?;
        let lints = at(&manifest_toml, &["workspace", "lints"]).cloned();
        let lints = lints.with_context(|| format!("{manifest} does not define workspace lints"))?;
        let kept = first.get_or_insert_with(|| lints.clone());
        if *kept != lints {
            bail!(
                "the lints of {manifest} differ from those of {}: {lints}, and {kept}",
                WORKSPACES[0]
            );
        }
        let folder = path.parent().context("a manifest is in a folder")?;
        for member in members(&manifest_toml) {
            let path = folder.join(member).join("Cargo.toml");
            if !inherits_lints(&read(&path)?) {
                bail!("{} does not take the workspace's lints", path.display());
            }
        }
    }
    Ok(())
}

fn read(manifest: &Path) -> Result<Value> {
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let table: Table = toml::from_str(&text).with_context(|| manifest.display().to_string())?;
    Ok(table.into())
}

fn at<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

/// Returns the folders of a workspace's packages; a manifest without members is a package.
fn members(manifest: &Value) -> Vec<&str> {
    match at(manifest, &["workspace", "members"]).and_then(Value::as_array) {
        Some(named) => named.iter().filter_map(Value::as_str).collect(),
        None => vec!["."],
    }
}

fn inherits_lints(manifest: &Value) -> bool {
    at(manifest, &["lints", "workspace"]) == Some(&Value::Boolean(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks three workspaces with these lints in the fuzzer's.
    ///
    /// `last` is the last line of the image's manifest.
    fn check_with(lints: &str, last: &str) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let put = |path: &str, text: String| -> Result<()> {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            Ok(fs::write(path, text)?)
        };
        let table = |lints| format!("[workspace.lints.rust]\n{lints}\n");
        let usual = "unsafe_code = \"deny\"";
        put(
            "Cargo.toml",
            format!("[workspace]\nmembers = []\n{}", table(usual)),
        )?;
        put(
            "fuzz/Cargo.toml",
            format!("{}[lints]\nworkspace = true\n", table(lints)),
        )?;
        put(
            "firmware/Cargo.toml",
            format!("[workspace]\nmembers = [\"image\"]\n{}", table(usual)),
        )?;
        put("firmware/image/Cargo.toml", format!("[lints]\n{last}\n"))?;
        check_equal(folder.path())
    }

    #[test]
    fn a_workspace_with_other_lints_and_a_package_without_them_are_refused() {
        check_with("unsafe_code = \"deny\"", "workspace = true").expect("alike");
        let other =
            check_with("unsafe_code = \"warn\"", "workspace = true").expect_err("other lints");
        assert!(
            other
                .to_string()
                .contains("the lints of fuzz/Cargo.toml differ")
        );
        let none =
            check_with("unsafe_code = \"deny\"", "workspace = false").expect_err("not taken");
        assert!(none.to_string().contains("image"), "{none}");
    }
}
