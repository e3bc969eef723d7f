//! The file to write: beside its place first, in its place when it is whole.

use std::fs::{self, Metadata};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::checksum_of;
use crate::failure::{Failure, Result};

/// Where the copy shall be.
pub(crate) struct Target {
    path: PathBuf,
    directory: PathBuf,
    /// Of the file it replaces, or of the source.
    permissions: fs::Permissions,
}

impl Target {
    /// Looks whether one can be copied to the other.
    pub(crate) fn choose(source: &Path, target: &Path) -> Result<Self> {
        let from = fs::metadata(source).map_err(|error| Failure::file("read", source, &error))?;
        if !from.is_file() {
            return Err(Failure::usage(
                format!("{} cannot be copied", source.display()),
                "it is not a regular file",
                "name a file; directories are not copied",
            ));
        }
        let mut path = target.to_path_buf();
        if path.is_dir() {
            path.push(source.file_name().unwrap_or_default());
        }
        let replaced = match fs::metadata(&path) {
            Ok(replaced) => Some(replaced),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A link to nothing is no free name: writing would replace the link.
                if fs::symlink_metadata(&path).is_ok() {
                    return Err(Failure::usage(
                        format!("{} cannot be written", path.display()),
                        "it is a link to a file that does not exist",
                        "make that file, or remove the link",
                    ));
                }
                None
            }
            Err(error) => return Err(Failure::file("write", &path, &error)),
        };
        if let Some(replaced) = &replaced {
            // A link stays a link; what it points to is replaced.
            path =
                fs::canonicalize(&path).map_err(|error| Failure::file("write", &path, &error))?;
            if !replaced.is_file() {
                return Err(Failure::usage(
                    format!("{} cannot be replaced", path.display()),
                    "it is not a regular file",
                    "name a file, or one that does not exist yet",
                ));
            }
            if same_file(source, &from, &path, replaced) {
                return Err(Failure::usage(
                    format!("{} cannot be copied onto itself", source.display()),
                    format!("{} is the same file", target.display()),
                    "name another target",
                ));
            }
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if path.file_name().is_none() {
            return Err(Failure::usage(
                format!("{} cannot be written", path.display()),
                "it names no file",
                "name a file",
            ));
        }
        Ok(Self {
            path,
            directory,
            permissions: replaced.unwrap_or(from).permissions(),
        })
    }

    /// Makes the file that is to become the copy.
    pub(crate) fn begin(self) -> Result<Part> {
        let file = tempfile::Builder::new()
            .prefix(".dat-copy-")
            .permissions(self.permissions.clone())
            .tempfile_in(&self.directory)
            .map_err(|error| Failure::file("write", &self.path, &error))?;
        Ok(Part { target: self, file })
    }
}

#[cfg(unix)]
fn same_file(_: &Path, from: &Metadata, _: &Path, to: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (from.dev(), from.ino()) == (to.dev(), to.ino())
}

#[cfg(not(unix))]
fn same_file(source: &Path, _: &Metadata, target: &Path, _: &Metadata) -> bool {
    match (fs::canonicalize(source), fs::canonicalize(target)) {
        (Ok(source), Ok(target)) => source == target,
        _ => false,
    }
}

/// A copy that is not in its place yet; dropping it removes it.
pub(crate) struct Part {
    target: Target,
    file: NamedTempFile,
}

impl Part {
    /// Adds to the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|error| Failure::file("write", &self.target.path, &error))
    }

    /// Reads the file back from its start.
    pub(crate) fn checksum(&mut self) -> Result<u128> {
        let file = self.file.as_file_mut();
        file.rewind()
            .map_err(|error| Failure::file("read back", &self.target.path, &error))?;
        checksum_of(file, &self.target.path)
    }

    /// Puts the file into its place, which it returns.
    pub(crate) fn keep(self) -> Result<PathBuf> {
        let path = self.target.path;
        match self.file.persist(&path) {
            Ok(_) => Ok(path),
            Err(refused) => Err(Failure::file("replace", &path, &refused.error)),
        }
    }
}
