//! Files to read: regular files, with the length that they really have.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::memory::MOST_MEMORY;
use crate::size::{counted, size};

/// Length up to which the system may not tell the truth, as for the files of `/proc` and `/sys`.
///
/// Such files are read when they are opened.
const DOUBTFUL: u64 = 1 << 16;

/// A file to read.
pub(crate) struct Source<'p> {
    path: &'p Path,
    /// The metadata from when it was opened.
    about: Metadata,
    content: Content,
    length: u64,
    /// Bytes that were read.
    taken: u64,
}

/// The bytes that are still to be read.
enum Content {
    /// Those of a short file.
    Memory(io::Cursor<Vec<u8>>),
    /// Those of a file.
    File(File),
}

impl<'p> Source<'p> {
    /// Opens a regular file; `done` names the action for a refusal.
    ///
    /// # Errors
    /// - File: the file cannot be read.
    /// - Usage: it is not a regular file.
    pub(crate) fn open(path: &'p Path, done: &str) -> Result<Self> {
        let unreadable = |error| Failure::file("read", path, &error);
        let regular = |about: Metadata| match about.is_file() {
            true => Ok(about),
            false => Err(irregular(path, &about, done)),
        };
        // To open a device may have effects.
        regular(path.metadata().map_err(unreadable)?)?;
        let mut file = open_at_once(path).map_err(unreadable)?;
        let about = regular(file.metadata().map_err(unreadable)?)?;
        let length = about.len();
        if length > DOUBTFUL {
            return Ok(Self {
                path,
                about,
                content: Content::File(file),
                length,
                taken: 0,
            });
        }
        let mut bytes = Vec::new();
        let whole = file.by_ref().take(MOST_MEMORY + 1);
        let length = { whole }.read_to_end(&mut bytes).map_err(unreadable)? as u64;
        if length > MOST_MEMORY {
            return Err(Failure::file_because(
                "read",
                path,
                format!(
                    "its length is not known, and it has more than {}",
                    size(MOST_MEMORY)
                ),
                "save its content in a regular file first",
            ));
        }
        Ok(Self {
            path,
            about,
            content: Content::Memory(io::Cursor::new(bytes)),
            length,
            taken: 0,
        })
    }

    /// Returns the path as the user named it.
    pub(crate) const fn path(&self) -> &'p Path {
        self.path
    }

    /// Returns the metadata from when the file was opened.
    pub(crate) const fn about(&self) -> &Metadata {
        &self.about
    }

    /// Returns the length of the file when it was opened.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if all bytes are read.
    pub(crate) const fn is_read(&self) -> bool {
        self.taken == self.length
    }

    /// Reads the next bytes; fills the buffer except at the end of the file.
    ///
    /// The end is that from when the file was opened.
    ///
    /// # Errors
    /// - File: the file cannot be read, or has become shorter.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.length - self.taken).unwrap_or(usize::MAX);
        let wanted = bytes.len().min(left);
        let bytes = bytes.get_mut(..wanted).unwrap_or_default();
        let read = match &mut self.content {
            Content::Memory(content) => fill(content, bytes),
            Content::File(file) => fill(file, bytes),
        };
        let count = read.map_err(|error| Failure::file("read", self.path, &error))?;
        self.taken += count as u64;
        if count < wanted {
            return Err(self.changed(format!(
                "it became shorter while it was read: it had {}, and ends after {}",
                counted(self.length, "byte"),
                self.taken
            )));
        }
        Ok(count)
    }

    /// Checks that the file is as it was when it was opened.
    ///
    /// # Errors
    /// - File: it has changed, or cannot be read.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Content::File(file) = &mut self.content else {
            return Ok(());
        };
        let before = &self.about;
        let unreadable = |error| Failure::file("read", self.path, &error);
        let after = file.metadata().map_err(unreadable)?;
        let is_longer = fill(file, &mut [0]).map_err(unreadable)? > 0;
        if is_longer || after.len() != before.len() {
            return Err(self.changed(format!(
                "its length changed while it was read, from {} to {}",
                self.length,
                counted(after.len(), "byte"),
            )));
        }
        let times = (before.modified().ok(), after.modified().ok());
        if times.0 != times.1 {
            return Err(self.changed("another program wrote to it while it was read".into()));
        }
        Ok(())
    }

    fn changed(&self, why: String) -> Failure {
        let remedy =
            "run the command again when no program writes to the file, or use a copy of it";
        Failure::file_because("use", self.path, why, remedy)
    }
}

/// Opens a file for reading; does not wait for the other end of a pipe.
fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Another program may have put a pipe in the place of the file. For files it has no effect.
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns the refusal of a source that is not a regular file.
///
/// `done` names the refused action, such as "copied".
fn irregular(source: &Path, about: &Metadata, done: &str) -> Failure {
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

/// Reads until the buffer is full or the file ends.
pub(crate) fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// Reads a file, which `change` changes after the first byte.
    fn read(length: usize, change: impl FnOnce(&Path)) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        fs::write(&path, vec![1; length]).unwrap();
        let mut source = Source::open(&path, "copied")?;
        assert_eq!(source.length(), length as u64);
        let mut bytes = vec![0; length];
        source.read(bytes.get_mut(..1).unwrap_or_default())?;
        change(&path);
        source.read(bytes.get_mut(1..).unwrap_or_default())?;
        source.finish()?;
        Ok(bytes)
    }

    /// A change of a file while it is read.
    type Change = fn(&Path);

    fn append(path: &Path) {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
    }

    #[test]
    fn a_file_that_changes_is_told() {
        const LONG: usize = 100_000;
        assert_eq!(read(LONG, |_| {}), Ok(vec![1; LONG]));
        let changes: [(Change, &str); 4] = [
            (append, "its length changed"),
            (
                |path| {
                    File::options()
                        .write(true)
                        .open(path)
                        .unwrap()
                        .set_len(LONG as u64 - 1)
                        .unwrap()
                },
                "it became shorter",
            ),
            (|path| fs::write(path, b"").unwrap(), "it became shorter"),
            (
                |path| {
                    let file = File::options().write(true).open(path).unwrap();
                    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
                    file.set_modified(later).unwrap();
                },
                "another program wrote to it",
            ),
        ];
        for (change, word) in changes {
            let told = read(LONG, change).unwrap_err();
            assert!(told.why.contains(word), "{}", told.why);
        }
    }

    /// A short file is read at once, so that later changes are no part of it.
    #[test]
    fn a_short_file_is_the_one_that_was_opened() {
        for length in [0, 1, 2, 65_536] {
            assert_eq!(read(length, append), Ok(vec![1; length]));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_a_length_has_its_content() {
        let path = Path::new("/proc/version");
        assert_eq!(path.metadata().unwrap().len(), 0);
        let mut source = Source::open(path, "copied").unwrap();
        let mut bytes = vec![0; 4096];
        let count = source.read(&mut bytes).unwrap();
        bytes.truncate(count);
        assert_eq!(bytes, fs::read(path).unwrap());
        assert_eq!(source.length(), count as u64);
    }
}
