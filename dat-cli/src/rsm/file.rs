//! Files on either side of a segment.

use std::fs::File;
use std::path::Path;

use twox_hash::XxHash3_128;

use crate::copy::fill;
use crate::copy::target::irregular;
use crate::failure::{Failure, Result};
use crate::output_file::{OutputPath, Part, exists};

/// A file to read.
pub(super) struct Source<'p> {
    file: File,
    path: &'p Path,
    length: u64,
}

impl<'p> Source<'p> {
    /// Opens a regular file; `done` names the action for a refusal.
    ///
    /// # Errors
    /// - File: the file cannot be read.
    /// - Usage: it is not a regular file.
    pub(super) fn open(path: &'p Path, done: &str) -> Result<Self> {
        let unreadable = |error| Failure::file("read", path, &error);
        let about = path.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(irregular(path, &about, done));
        }
        Ok(Self {
            file: File::open(path).map_err(unreadable)?,
            path,
            length: about.len(),
        })
    }

    /// Returns the length of the file when it was opened.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Reads the next bytes; fills the buffer except at the end of the file.
    ///
    /// # Errors
    /// - File: the file cannot be read.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let path = self.path;
        fill(&mut self.file, bytes).map_err(|error| Failure::file("read", path, &error))
    }
}

/// A new file; it appears at its path when it is complete.
pub(super) struct Fresh {
    part: Part,
}

impl Fresh {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// - File: the path exists, or the file cannot be created.
    /// - Usage: the path names no file.
    pub(super) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Failure::file_because(
                "write",
                path,
                "it is a directory",
                "name a new file in it",
            ));
        }
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let part = OutputPath::choose(path)?.begin(None)?;
        Ok(Self { part })
    }

    /// Appends bytes to the file.
    ///
    /// # Errors
    /// - File: the bytes cannot be written.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.part.write(bytes)
    }

    /// Writes all bytes and keeps the file.
    ///
    /// # Errors
    /// - File: the file cannot be written.
    pub(super) fn write(mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes)?;
        self.keep()
    }

    /// Moves the file to its path.
    ///
    /// # Errors
    /// - File: the path is taken meanwhile, or the file cannot be moved.
    pub(super) fn keep(self) -> Result<()> {
        self.part.keep_new()
    }
}

/// Returns the checksum of bytes.
pub(super) fn checksum(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}
