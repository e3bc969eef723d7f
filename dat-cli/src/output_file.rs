//! Files to write: written to a temporary file first, which replaces the destination when complete.

use std::cell::Cell;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};

/// A path that a file can be written to.
pub(crate) struct OutputPath {
    /// The path as the user named it.
    name: PathBuf,
    /// The path to write; symbolic links are resolved if the file exists.
    path: PathBuf,
    directory: PathBuf,
    /// Metadata of the existing file.
    replaced: Option<Metadata>,
}

impl OutputPath {
    /// Checks that a file may be written to a path; changes nothing.
    ///
    /// # Errors
    /// - File: the directory does not exist, or the existing file is not writable.
    /// - Usage: the path names no file, is a dangling link, or exists and is not a regular file.
    pub(crate) fn choose(name: &Path) -> Result<Self> {
        if name.file_name().is_none() {
            return Err(Failure::usage(
                format!("{} cannot be written", name.display()),
                "the path ends in no file name",
                "name a file",
            ));
        }
        if names_directory(name) && !name.is_dir() {
            return Err(Failure::file_because(
                "write",
                name,
                "the directory does not exist",
                "create the directory, or remove the trailing part of the path",
            ));
        }
        let failed = |error| Failure::file("write", name, &error);
        let replaced = match fs::metadata(name) {
            Ok(replaced) => Some(replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A dangling link is not a free name: writing would replace the link.
                if fs::symlink_metadata(name).is_ok() {
                    return Err(Failure::usage(
                        format!("{} cannot be written", name.display()),
                        "it is a symbolic link to a file that does not exist",
                        "create that file, or remove the link",
                    ));
                }
                None
            }
            Err(error) => return Err(failed(error)),
        };
        let path = match &replaced {
            Some(replaced) if !replaced.is_file() => {
                return Err(Failure::usage(
                    format!("{} cannot be replaced", name.display()),
                    "it is not a regular file",
                    "name a regular file or a new one",
                ));
            }
            // The link stays; the file that it points to is replaced.
            Some(_) => fs::canonicalize(name).map_err(failed)?,
            None => name.to_path_buf(),
        };
        // The directory's permissions would allow replacing a read-only file, but the file is
        // read-only on purpose.
        if replaced.is_some()
            && let Err(error) = File::options().write(true).open(&path)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(failed(error));
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if !directory.is_dir() {
            return Err(Failure::file_because(
                "write",
                name,
                format!("the directory {} does not exist", directory.display()),
                "check the spelling, or create the directory",
            ));
        }
        Ok(Self {
            name: name.to_path_buf(),
            path,
            directory,
            replaced,
        })
    }

    /// Returns the path as the user named it.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the path to write; symbolic links are resolved if the file exists.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata of the existing file.
    pub(crate) fn replaced(&self) -> Option<&Metadata> {
        self.replaced.as_ref()
    }

    /// Checks that a temporary file can be created in the directory; leaves none.
    ///
    /// # Errors
    /// - Those of `begin`.
    pub(crate) fn probe(&self) -> Result<()> {
        self.make(None)
            .map(|_| ())
            .map_err(|error| self.not_created(&error))
    }

    fn make(&self, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
        // The wrapper's errors name the temporary file, and not the error of the system.
        let refused = Cell::new(None);
        let create = |path: &Path| {
            let created = create(path, permissions.clone());
            created.inspect_err(|error| refused.set(error.raw_os_error()))
        };
        tempfile::Builder::new()
            .prefix(".dat-part-")
            .make_in(&self.directory, create)
            .map_err(|error| refused.get().map_or(error, io::Error::from_raw_os_error))
    }

    fn not_created(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::NotFound if self.directory.is_dir() => Failure::file_because(
                "create a file in",
                &self.directory,
                format!("its file system accepts no new files: {error}"),
                "choose another directory",
            ),
            _ => Failure::file("create a file in", &self.directory, error),
        }
    }

    /// Creates the temporary file that [`Part::keep`] moves to the path.
    ///
    /// Its permissions are those of the existing file, else those of `like`, else those of
    /// any new file, reduced by the user's mask.
    ///
    /// # Errors
    /// - File: no file can be created in the directory.
    pub(crate) fn begin(self, like: Option<&Metadata>) -> Result<Part> {
        match self.make(self.permissions(like)) {
            Ok(file) => Ok(Part { target: self, file }),
            Err(error) => Err(self.not_created(&error)),
        }
    }

    /// As [`begin`](Self::begin), with the error of the system.
    pub(crate) fn try_begin(self) -> io::Result<Part> {
        let file = self.make(self.permissions(None))?;
        Ok(Part { target: self, file })
    }

    fn permissions(&self, like: Option<&Metadata>) -> Option<Permissions> {
        self.replaced.as_ref().or(like).map(Metadata::permissions)
    }
}

/// Returns true if a path can only name a directory.
///
/// `Path` does not distinguish `name/` and `name/.` from `name`.
fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let last = bytes.strip_suffix(b".").unwrap_or(bytes).last();
    last.is_some_and(|last| std::path::is_separator(char::from(*last)))
}

/// Creates a file; fails if the path exists.
fn create(path: &Path, permissions: Option<Permissions>) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    options.mode(access(permissions).mode()).open(path)
}

/// Returns the read, write and execute bits only.
///
/// New content must not inherit the set-user-ID and set-group-ID bits.
fn access(permissions: Option<Permissions>) -> Permissions {
    Permissions::from_mode(permissions.map_or(0o666, |permissions| permissions.mode() & 0o777))
}

/// A file that is not at its path yet; dropping it removes it.
pub(crate) struct Part {
    target: OutputPath,
    file: NamedTempFile,
}

impl Part {
    /// Returns the path that the file is written for.
    pub(crate) fn target(&self) -> &OutputPath {
        &self.target
    }

    /// Appends bytes to the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes)
            .map_err(|error| Failure::file("write", &self.target.name, &error))
    }

    /// As [`write`](Self::write), with the error of the system.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // The wrapper's errors would name the temporary file.
        self.file.as_file_mut().write_all(bytes)
    }

    /// Returns the temporary file.
    pub(crate) fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Moves the file to its path.
    ///
    /// An existing file passes on its owner, group and permissions.
    ///
    /// # Errors
    /// - File: the file cannot be moved, or cannot get the owner, group and permissions of the
    ///   existing file. The existing file is untouched.
    pub(crate) fn keep(self) -> Result<()> {
        let Self { target, file } = self;
        if let Some(replaced) = &target.replaced {
            resemble(file.as_file(), replaced).map_err(|error| {
                Failure::file_because(
                    "replace",
                    &target.name,
                    format!("the new file cannot get its owner, group and permissions: {error}"),
                    "choose another name, or remove the file first",
                )
            })?;
        }
        file.persist(&target.path)
            .map(|_| ())
            .map_err(|refused| Failure::file("replace", &target.name, &refused.error))
    }

    /// Moves the file to its path durably.
    ///
    /// `sync` writes the file to the disk before the move and its directory after it. Without
    /// `replace` the path must still be free. `moved` is called when the file is at its path.
    ///
    /// # Errors
    /// - `AlreadyExists`: another file has taken the path; it is untouched.
    /// - Others: the errors of the system. If the directory cannot be written to the disk, the file
    ///   is at its path, but a power failure may undo that.
    pub(crate) fn store(
        self,
        replace: bool,
        sync: &dyn Fn(&File) -> io::Result<()>,
        moved: impl FnOnce(),
    ) -> io::Result<()> {
        let Self { target, file } = self;
        if let Some(replaced) = target.replaced.as_ref().filter(|_| replace) {
            resemble(file.as_file(), replaced)?;
        }
        sync(file.as_file())?;
        if replace {
            file.persist(&target.path)
        } else {
            file.persist_noclobber(&target.path)
        }
        .map_err(|refused| refused.error)?;
        moved();
        sync(&File::open(&target.directory)?)?;
        Ok(())
    }

    /// Moves the file to its path, which must still be free.
    ///
    /// # Errors
    /// - File: the path is taken, or the file cannot be moved.
    pub(crate) fn keep_new(self) -> Result<()> {
        let Self { target, file } = self;
        file.persist_noclobber(&target.path)
            .map(|_| ())
            .map_err(|refused| match refused.error.kind() {
                io::ErrorKind::AlreadyExists => exists(&target.name),
                _ => Failure::file("write", &target.name, &refused.error),
            })
    }
}

/// Returns the refusal to replace an existing file.
pub(crate) fn exists(path: &Path) -> Failure {
    Failure::file_because(
        "write",
        path,
        "the file already exists",
        "choose another name, or remove it first",
    )
}

/// Gives a new file the owner, group and permissions of the file that it replaces.
fn resemble(file: &File, replaced: &Metadata) -> io::Result<()> {
    let fresh = file.metadata()?;
    let differs = |fresh, replaced| (fresh != replaced).then_some(replaced);
    let owner = differs(fresh.uid(), replaced.uid());
    let group = differs(fresh.gid(), replaced.gid());
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    file.set_permissions(access(Some(replaced.permissions())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The file is synced before the move, and its directory after it.
    #[test]
    fn a_file_is_on_the_disk_before_it_is_stored() {
        for replace in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            if replace {
                fs::write(&path, "old").unwrap();
            }
            let begin = || {
                let mut part = OutputPath::choose(&path).unwrap().begin(None).unwrap();
                part.write(b"new").unwrap();
                part
            };
            let content = || fs::read_to_string(&path).ok();
            let before = replace.then(|| "old".to_owned());
            let refused =
                begin().store(replace, &|_| Err(io::ErrorKind::StorageFull.into()), || {});
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(content(), before);
            let synced = RefCell::new(Vec::new());
            let stored = begin().store(
                replace,
                &|file| {
                    let about = file.metadata()?;
                    synced.borrow_mut().push((about.is_dir(), content()));
                    Ok(())
                },
                || {},
            );
            stored.unwrap();
            let expected = [(false, before), (true, Some("new".into()))];
            assert_eq!(synced.into_inner(), expected);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    /// Without `replace`, a file that was created meanwhile stays.
    #[test]
    fn a_file_created_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for replace in [false, true] {
            let mut part = OutputPath::choose(&path).unwrap().begin(None).unwrap();
            part.write(b"ours").unwrap();
            fs::write(&path, "theirs").unwrap();
            let mut is_moved = false;
            let outcome = part.store(replace, &File::sync_all, || is_moved = true);
            assert_eq!(is_moved, outcome.is_ok());
            let content = fs::read_to_string(&path).unwrap();
            if replace {
                outcome.unwrap();
                assert_eq!(content, "ours");
            } else {
                assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
                assert_eq!(content, "theirs");
            }
            fs::remove_file(&path).unwrap();
        }
    }
}
