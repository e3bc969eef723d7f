//! New files with the content of a segment.

use std::path::Path;

use twox_hash::XxHash3_128;

use crate::failure::{Failure, Result};
use crate::output_file::{OutputPath, Part, exists};

/// Creates the temporary file of a new file.
///
/// # Errors
/// - File: the path exists, or the file cannot be created.
/// - Usage: the path names no file.
pub(super) fn create(path: &Path) -> Result<Part> {
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
    OutputPath::choose(path)?.begin(None)
}

/// Writes all bytes to a new file, if there is one, and keeps it.
///
/// # Errors
/// - File: the file cannot be written, or the path is taken meanwhile.
pub(super) fn save(file: Option<Part>, bytes: &[u8]) -> Result<()> {
    let Some(mut file) = file else {
        return Ok(());
    };
    file.write(bytes)?;
    file.keep_new()
}

/// Returns the checksum of bytes.
pub(super) fn checksum(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}
