//! Where the copy of a file shall be.

use std::fs::{self, Metadata};
use std::io::Seek;
use std::path::Path;

use super::checksum_of;
use crate::failure::{Failure, Result};
use crate::interrupt::Signals;
use crate::place::{Part, Place};

/// A place for a copy.
pub(crate) struct Target {
    place: Place,
    source: Metadata,
}

impl Target {
    /// Looks whether one can be copied to the other.
    pub(crate) fn choose(source: &Path, target: &Path) -> Result<Self> {
        let from = fs::metadata(source).map_err(|error| Failure::file("read", source, &error))?;
        if !from.is_file() {
            return Err(irregular(source, &from, "copied"));
        }
        let mut path = target.to_path_buf();
        if path.is_dir() {
            path.push(source.file_name().unwrap_or_default());
        }
        let place = Place::choose(&path)?;
        if is_same(source, &from, &place) {
            return Err(Failure::usage(
                format!("{} cannot be copied onto itself", source.display()),
                format!("{} is the same file", path.display()),
                "name another target",
            ));
        }
        Ok(Self {
            place,
            source: from,
        })
    }

    /// Makes the file that is to become the copy.
    pub(crate) fn begin(self) -> Result<Part> {
        self.place.begin(Some(&self.source))
    }
}

/// The refusal of a source that is no regular file and so cannot be `done`: copied, or what else is done with files.
pub(crate) fn irregular(source: &Path, about: &Metadata, done: &str) -> Failure {
    let (why, remedy) = if about.is_dir() {
        (
            "it is a directory, not a regular file",
            format!("name a file in it; directories are not {done}"),
        )
    } else {
        (
            "it is not a regular file: devices, pipes and sockets have no length",
            format!("store what is to be {done} in a file first"),
        )
    };
    Failure::usage(
        format!("{} cannot be {done}", source.display()),
        why,
        remedy,
    )
}

/// The checksum of a file that was written, from its start.
pub(crate) fn read_back(part: &mut Part, signals: &Signals) -> Result<u128> {
    let name = part.place().name().to_path_buf();
    let file = part.file();
    file.rewind()
        .map_err(|error| Failure::file("read back", &name, &error))?;
    checksum_of(file, &name, signals)
}

#[cfg(unix)]
fn is_same(_: &Path, from: &Metadata, place: &Place) -> bool {
    use std::os::unix::fs::MetadataExt;
    place
        .replaced()
        .is_some_and(|to| (from.dev(), from.ino()) == (to.dev(), to.ino()))
}

#[cfg(not(unix))]
fn is_same(source: &Path, _: &Metadata, place: &Place) -> bool {
    match (fs::canonicalize(source), fs::canonicalize(place.path())) {
        (Ok(source), Ok(target)) => source == target,
        _ => false,
    }
}
