//! The packages of the workspace, as cargo reports them.

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, Package};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xshell::Shell;

/// The workspace that this program was built from, and a shell in its root.
pub(crate) struct Workspace {
    metadata: Metadata,
    pub(crate) shell: Shell,
}

impl Workspace {
    /// Reads the metadata of the workspace, from any current folder.
    pub(crate) fn load() -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .exec()
            .context("cargo metadata")?;
        let shell = Shell::new()?;
        shell.change_dir(&metadata.workspace_root);
        Ok(Self { metadata, shell })
    }

    /// Returns the folder of the workspace's manifest.
    pub(crate) fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// Returns the build folder of cargo.
    pub(crate) fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// Returns the folder of this workspace's cargo tools, separate from the user's.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target().join("tools")
    }

    /// Returns the member with that name, if the workspace has one.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.metadata
            .workspace_packages()
            .into_iter()
            .find(|package| package.name == name)
    }

    /// Returns the member with that name.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        self.member(name)
            .with_context(|| format!("the workspace has no package {name}"))
    }

    /// Returns a file of the workspace as text.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.root().join(file)).with_context(|| file.to_owned())
    }

    /// Reads a file of the workspace.
    pub(crate) fn read_toml<T: DeserializeOwned>(&self, file: &str) -> Result<T> {
        toml::from_str(&self.read(file)?).with_context(|| file.to_owned())
    }

    /// Returns every member, sorted by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members = self.metadata.workspace_packages();
        members.sort_by_key(|package| &package.name);
        members
    }

    /// Returns the table `workspace.metadata` of the manifest.
    pub(crate) fn table(&self) -> &serde_json::Value {
        &self.metadata.workspace_metadata
    }

    /// Returns the folder of every member.
    pub(crate) fn member_folders(&self) -> Vec<PathBuf> {
        self.metadata
            .workspace_packages()
            .iter()
            .filter_map(|package| package.manifest_path.parent())
            .map(|folder| folder.as_std_path().to_path_buf())
            .collect()
    }

    /// Returns the direct third-party dependencies of the members, the fuzzer and the images.
    pub(crate) fn direct_dependencies(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for more in ["fuzz/Cargo.toml", "firmware/Cargo.toml"] {
            let other = MetadataCommand::new()
                .manifest_path(self.root().join(more))
                .no_deps()
                .exec()
                .with_context(|| format!("cargo metadata of {more}"))?;
            names.extend(third_party(&other));
        }
        names.extend(third_party(&self.metadata));
        Ok(names)
    }

    /// Returns the locked packages of a workspace, for all platforms and features.
    ///
    /// The result is the same on every machine.
    pub(crate) fn locked(&self, manifest: &str) -> Result<Metadata> {
        MetadataCommand::new()
            .manifest_path(self.root().join(manifest))
            .features(CargoOpt::AllFeatures)
            .other_options(["--locked".to_owned()])
            .exec()
            .with_context(|| format!("cargo metadata of {manifest}"))
    }
}

fn third_party(metadata: &Metadata) -> impl Iterator<Item = String> {
    metadata
        .workspace_packages()
        .into_iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.path.is_none())
        .map(|dependency| dependency.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one of these crates, the build script panics on a machine that lacks the headers. Then
    /// an editor shows the panic, and `cargo check --workspace` fails.
    #[test]
    fn without_features_no_build_reads_headers_of_the_system() {
        let workspace = Workspace::load().expect("workspace");
        for reader in ["bindgen", "clang-sys", "pkg-config"] {
            let mut locked = workspace.metadata.packages.iter();
            assert!(locked.all(|package| package.name != reader), "{reader}");
        }
    }
}
