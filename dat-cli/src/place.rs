//! Where a file shall be: it is written beside its place first, and takes the place when it is whole.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};

/// A place that a file can have.
pub(crate) struct Place {
    /// As the user named it.
    name: PathBuf,
    /// The same with symbolic links followed.
    path: PathBuf,
    directory: PathBuf,
    /// The file that is there.
    replaced: Option<Metadata>,
}

impl Place {
    /// Looks whether a file may be written there, and changes nothing.
    ///
    /// # Errors
    /// File: there is no such directory, or the file that is there may not be written. Usage: something is there that is no
    /// regular file.
    pub(crate) fn choose(name: &Path) -> Result<Self> {
        if name.file_name().is_none() {
            return Err(Failure::usage(
                format!("{} cannot be written", name.display()),
                "it names no file",
                "name a file",
            ));
        }
        if names_directory(name) && !name.is_dir() {
            return Err(Failure::file_because(
                "write",
                name,
                "there is no such directory",
                "make the directory, or leave out what follows the name",
            ));
        }
        let failed = |error| Failure::file("write", name, &error);
        let replaced = match fs::metadata(name) {
            Ok(replaced) => Some(replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link to nothing is no free name: writing would replace the link.
                if fs::symlink_metadata(name).is_ok() {
                    return Err(Failure::usage(
                        format!("{} cannot be written", name.display()),
                        "it is a link to a file that does not exist",
                        "make that file, or remove the link",
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
                    "name a file, or one that does not exist yet",
                ));
            }
            // A link stays a link; what it points to is replaced.
            Some(_) => fs::canonicalize(name).map_err(failed)?,
            None => name.to_path_buf(),
        };
        // The directory would let us replace a read-only file; but that it is one says that nobody wants it to be.
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
                format!("there is no directory {}", directory.display()),
                "check the spelling, or make the directory",
            ));
        }
        Ok(Self {
            name: name.to_path_buf(),
            path,
            directory,
            replaced,
        })
    }

    /// As the user named it.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Where it is, symbolic links followed.
    #[cfg(any(not(unix), feature = "verbs", test))]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that is there.
    pub(crate) fn replaced(&self) -> Option<&Metadata> {
        self.replaced.as_ref()
    }

    /// Tries whether a file can be made beside the place, and leaves nothing.
    ///
    /// # Errors
    /// As `begin`.
    pub(crate) fn probe(&self) -> Result<()> {
        self.make(None).map(|_| ())
    }

    fn make(&self, permissions: Option<Permissions>) -> Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix(".dat-part-")
            .make_in(&self.directory, |path| create(path, permissions.clone()))
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound if self.directory.is_dir() => Failure::file_because(
                    "make a file in",
                    &self.directory,
                    format!("its file system takes no new files: {error}"),
                    "choose another directory",
                ),
                _ => Failure::file("make a file in", &self.directory, &error),
            })
    }

    /// Makes the file that is to take the place.
    ///
    /// It has the permissions of the file that is there, or else of `like`, or else those of any new file; less what the
    /// user's mask takes off.
    ///
    /// # Errors
    /// File: none can be made in the directory.
    pub(crate) fn begin(self, like: Option<&Metadata>) -> Result<Part> {
        let permissions = self.replaced.as_ref().or(like).map(Metadata::permissions);
        let file = self.make(permissions)?;
        Ok(Part { place: self, file })
    }
}

/// Whether a path can only mean a directory. `Path` itself does not tell `name/` and `name/.` from `name`.
fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let last = bytes.strip_suffix(b".").unwrap_or(bytes).last();
    last.is_some_and(|last| std::path::is_separator(char::from(*last)))
}

/// Makes a file that is not there yet.
fn create(path: &Path, permissions: Option<Permissions>) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(access(permissions).mode());
    }
    #[cfg(not(unix))]
    let _ = permissions;
    options.open(path)
}

/// Reading, writing and executing only: the right to run as the owner or group does not go over to new content.
#[cfg(unix)]
fn access(permissions: Option<Permissions>) -> Permissions {
    use std::os::unix::fs::PermissionsExt;
    Permissions::from_mode(permissions.map_or(0o666, |permissions| permissions.mode() & 0o777))
}

/// A file that is not in its place yet; dropping it removes it.
pub(crate) struct Part {
    place: Place,
    file: NamedTempFile,
}

impl Part {
    /// The place that it shall have.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Adds to the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // Not through the wrapper, whose errors name the temporary file.
        self.file
            .as_file_mut()
            .write_all(bytes)
            .map_err(|error| Failure::file("write", &self.place.name, &error))
    }

    /// The file itself.
    pub(crate) fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Puts the file into its place. A file that was there passes on its owner, group and permissions.
    ///
    /// # Errors
    /// File: it cannot be put there, or would have to have another owner than the one that was there; that one is untouched.
    pub(crate) fn keep(self) -> Result<()> {
        let Self { place, file } = self;
        if let Some(replaced) = &place.replaced {
            resemble(file.as_file(), replaced).map_err(|error| {
                Failure::file_because(
                    "replace",
                    &place.name,
                    format!("its owner, group and permissions cannot be kept: {error}"),
                    "choose another name, or remove the file first",
                )
            })?;
        }
        file.persist(&place.path)
            .map(|_| ())
            .map_err(|refused| Failure::file("replace", &place.name, &refused.error))
    }

    /// Puts the file into its place for good: `sync` writes the file to the disk before that, and its folder after it. Without
    /// `replace` the place must still be free.
    ///
    /// # Errors
    /// `AlreadyExists`: something has taken the place; it is untouched. Others: the system's; if the folder cannot be written to
    /// the disk, the file is in its place, and a failure of the power may undo that.
    #[cfg(any(feature = "verbs", test))]
    pub(crate) fn store(
        self,
        replace: bool,
        sync: &dyn Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self { place, file } = self;
        if let Some(replaced) = place.replaced.as_ref().filter(|_| replace) {
            resemble(file.as_file(), replaced)?;
        }
        sync(file.as_file())?;
        if replace {
            file.persist(&place.path)
        } else {
            file.persist_noclobber(&place.path)
        }
        .map_err(|refused| refused.error)?;
        // Elsewhere folders cannot be opened, and need not be.
        #[cfg(unix)]
        sync(&File::open(&place.directory)?)?;
        Ok(())
    }

    /// Puts the file into a place that nothing has taken meanwhile.
    ///
    /// # Errors
    /// File: something has, or it cannot be put there.
    pub(crate) fn keep_new(self) -> Result<()> {
        let Self { place, file } = self;
        file.persist_noclobber(&place.path)
            .map(|_| ())
            .map_err(|refused| match refused.error.kind() {
                io::ErrorKind::AlreadyExists => exists(&place.name),
                _ => Failure::file("write", &place.name, &refused.error),
            })
    }
}

/// The refusal to replace what is there.
pub(crate) fn exists(path: &Path) -> Failure {
    Failure::file_because(
        "write",
        path,
        "it exists",
        "choose another name, or remove it first",
    )
}

/// Gives a new file the owner, group and permissions of the one it replaces.
#[cfg(unix)]
fn resemble(file: &File, replaced: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let fresh = file.metadata()?;
    let differs = |fresh, replaced| (fresh != replaced).then_some(replaced);
    let owner = differs(fresh.uid(), replaced.uid());
    let group = differs(fresh.gid(), replaced.gid());
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    file.set_permissions(access(Some(replaced.permissions())))
}

#[cfg(not(unix))]
fn resemble(file: &File, replaced: &Metadata) -> io::Result<()> {
    file.set_permissions(replaced.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The file is on the disk before it takes its place, and its folder after that.
    #[test]
    fn a_file_is_on_the_disk_before_it_is_stored() {
        for replace in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            if replace {
                fs::write(&path, "old").unwrap();
            }
            let begin = || {
                let mut part = Place::choose(&path).unwrap().begin(None).unwrap();
                part.write(b"new").unwrap();
                part
            };
            let content = || fs::read_to_string(&path).ok();
            let before = replace.then(|| "old".to_owned());
            let refused = begin().store(replace, &|_| Err(io::ErrorKind::StorageFull.into()));
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(content(), before);
            let synced = RefCell::new(Vec::new());
            let stored = begin().store(replace, &|file| {
                let about = file.metadata()?;
                synced.borrow_mut().push((about.is_dir(), content()));
                Ok(())
            });
            stored.unwrap();
            let mut expected = vec![(false, before)];
            if cfg!(unix) {
                expected.push((true, Some("new".into())));
            }
            assert_eq!(synced.into_inner(), expected);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    /// A file that was made meanwhile stays, without `replace`.
    #[test]
    fn a_place_that_was_taken_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for replace in [false, true] {
            let mut part = Place::choose(&path).unwrap().begin(None).unwrap();
            part.write(b"ours").unwrap();
            fs::write(&path, "theirs").unwrap();
            let outcome = part.store(replace, &File::sync_all);
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
