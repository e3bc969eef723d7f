//! New files with the content of a segment.

use std::path::Path;

use twox_hash::XxHash3_128;

use crate::failure::{Failure, Result};
use crate::output_file::{OutputPath, Part, exists};

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
