//! Files on either side of a segment.

use std::fs::File;
use std::path::Path;

use twox_hash::XxHash3_128;

use crate::copy::fill;
use crate::copy::target::irregular;
use crate::failure::{Failure, Result};
use crate::host::Memory;
use crate::output_file::{OutputPath, Part, exists};

/// Bytes moved between files and memory at a time.
const CHUNK: usize = 1 << 20;

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

    /// Writes the whole of a memory and keeps the file.
    ///
    /// # Errors
    /// - File: the file cannot be written.
    pub(super) fn write(mut self, memory: Memory) -> Result<()> {
        for_each(memory, 0, memory.length(), |bytes| self.append(bytes))?;
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

/// The checksum of memory.
pub(super) struct Contents(u128);

impl Contents {
    /// Computes the checksum of the first `length` bytes.
    pub(super) fn of(memory: Memory, length: u64) -> Self {
        Self::part(memory, 0, length)
    }

    /// Computes the checksum of a part of the memory.
    pub(super) fn part(memory: Memory, offset: u64, length: u64) -> Self {
        let mut hasher = XxHash3_128::new();
        let as_size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let hashed = for_each(memory, as_size(offset), as_size(length), |bytes| {
            hasher.write(bytes);
            Ok(())
        });
        debug_assert_eq!(hashed, Ok(()), "hashing does not fail");
        Self(hasher.finish_128())
    }

    /// Returns the checksum.
    pub(super) fn checksum(&self) -> u128 {
        self.0
    }

    /// Checks that another checksum is the same.
    ///
    /// # Errors
    /// - Operation: the checksums differ.
    pub(super) fn compare(&self, found: u128) -> Result<()> {
        super::compare(found, self.0)
    }
}

fn for_each(
    memory: Memory,
    offset: usize,
    length: usize,
    mut act: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = vec![0; CHUNK.min(length)];
    let end = offset.saturating_add(length).min(memory.length());
    let mut position = offset;
    while position < end {
        let count = CHUNK.min(end - position);
        let part = bytes.get_mut(..count).unwrap_or_default();
        memory.load(position, part);
        act(part)?;
        position += count;
    }
    Ok(())
}
