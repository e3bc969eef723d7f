//! The target of a file copy.

use std::fs::{self, Metadata};
use std::io::Seek;
use std::path::Path;

use super::checksum_of;
use crate::failure::{Failure, Result};
use crate::interrupt::Signals;
use crate::output_file::{OutputPath, Part};

/// The path for a copy, and the metadata of its source.
pub(crate) struct Target {
    output: OutputPath,
    source: Metadata,
}

impl Target {
    /// Checks that the source can be copied to the target.
    pub(crate) fn choose(source: &Path, target: &Path) -> Result<Self> {
        let from = fs::metadata(source).map_err(|error| Failure::file("read", source, &error))?;
        if !from.is_file() {
            return Err(irregular(source, &from, "copied"));
        }
        let mut path = target.to_path_buf();
        if path.is_dir() {
            path.push(source.file_name().unwrap_or_default());
        }
        let output = OutputPath::choose(&path)?;
        if is_same(source, &from, &output) {
            return Err(Failure::usage(
                format!("{} cannot be copied onto itself", source.display()),
                format!("both names are the same file: {}", path.display()),
                "choose another destination",
            ));
        }
        Ok(Self {
            output,
            source: from,
        })
    }

    /// Creates the temporary file for the copy.
    pub(crate) fn begin(self) -> Result<Part> {
        self.output.begin(Some(&self.source))
    }
}

/// Returns the refusal of a source that is not a regular file.
///
/// `done` names the refused action, such as "copied".
pub(crate) fn irregular(source: &Path, about: &Metadata, done: &str) -> Failure {
    let (why, remedy) = if about.is_dir() {
        (
            "it is a directory, not a regular file",
            format!("name a file in it; directories cannot be {done}"),
        )
    } else {
        (
            "it is not a regular file; devices, pipes and sockets have no length",
            format!("save the data to be {done} in a regular file first"),
        )
    };
    Failure::usage(
        format!("{} cannot be {done}", source.display()),
        why,
        remedy,
    )
}

/// Computes the checksum of a written file from its start.
pub(crate) fn read_back(part: &mut Part, signals: &Signals) -> Result<u128> {
    let name = part.target().name().to_path_buf();
    let file = part.file();
    file.rewind()
        .map_err(|error| Failure::file("read back", &name, &error))?;
    checksum_of(file, &name, signals)
}

#[cfg(unix)]
fn is_same(_: &Path, from: &Metadata, output: &OutputPath) -> bool {
    use std::os::unix::fs::MetadataExt;
    output
        .replaced()
        .is_some_and(|to| (from.dev(), from.ino()) == (to.dev(), to.ino()))
}

#[cfg(not(unix))]
fn is_same(source: &Path, _: &Metadata, output: &OutputPath) -> bool {
    match (fs::canonicalize(source), fs::canonicalize(output.path())) {
        (Ok(source), Ok(target)) => source == target,
        _ => false,
    }
}
