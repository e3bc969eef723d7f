//! Failures of a command: the problem, its reason and a remedy.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::limits::{self, Reached};

/// The kinds of failure, with one exit code each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// An operation failed, or its outcome is not the specified one.
    Operation,
    /// The arguments cannot be used together.
    Usage,
    /// A file cannot be read or written.
    File,
    /// The memory does not suffice.
    Memory,
    /// A signal ended the command.
    Interrupted,
}

impl FailureKind {
    /// Returns the exit code of the program.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Operation | Self::Memory => 1,
            Self::Usage => 2,
            Self::File => 3,
            // The code that shells report for SIGINT; used if the signal cannot be raised again.
            Self::Interrupted => 130,
        }
    }
}

/// A failure of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The action that failed.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
    /// The user's remedy.
    pub(crate) remedy: String,
}

/// The result of a command or of a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Builds a failure of an operation of the interface.
    pub(crate) fn operation(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            kind: FailureKind::Operation,
            what: what.into(),
            why: why.to_string(),
            remedy:
                "run `dat tour`: if it fails too, the build is broken; otherwise please report this"
                    .into(),
        }
    }

    /// Adds the system limit that caused the failure, if one did, and its remedy.
    pub(crate) fn because(self, reached: Option<Reached>) -> Self {
        match reached {
            None => self,
            Some(Reached { why, remedy }) => Self {
                why: format!("{}; {why}", self.why),
                remedy: remedy.into(),
                ..self
            },
        }
    }

    /// Builds a failure of arguments that cannot be used.
    pub(crate) fn usage(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            kind: FailureKind::Usage,
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// Builds a failure of a file, with a remedy for the error.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        // A dangling symbolic link anywhere in the path makes the file unreachable.
        let link = path
            .ancestors()
            .find(|part| part.is_symlink() && part.metadata().is_err());
        if let Some(link) = link
            && error.kind() != io::ErrorKind::PermissionDenied
        {
            let remedy = format!("check the target of the symbolic link {}", link.display());
            return Self::file_because(doing, path, error.to_string(), remedy);
        }
        if error.kind() != io::ErrorKind::NotFound
            && let Some(Reached { why, remedy }) = limits::descriptors()
        {
            return Self::file_because(doing, path, format!("{error}: {why}"), remedy);
        }
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "check the spelling, and that the directory exists",
            io::ErrorKind::PermissionDenied => {
                "check the permissions of the file and its directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or choose another file system"
            }
            _ => "check the file and its file system",
        };
        Self::file_because(doing, path, error.to_string(), remedy)
    }

    /// Builds a failure of a file, for a reason that was found before trying.
    pub(crate) fn file_because(
        doing: &str,
        path: &Path,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            kind: FailureKind::File,
            what: format!("cannot {doing} {}", path.display()),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Failure {}

/// Names the failed call of the interface in a failure.
pub(crate) trait During<T> {
    /// Turns an error of `call` into a failure of the program.
    fn during(self, call: &str) -> Result<T>;
}

impl<T> During<T> for dat_core::Result<T> {
    fn during(self, call: &str) -> Result<T> {
        self.map_err(|error| {
            let reached = limits::reached(error);
            Failure::operation(format!("{call} failed"), error).because(reached)
        })
    }
}

impl<T> During<T> for dat_host::Result<T> {
    fn during(self, call: &str) -> Result<T> {
        self.or_else(|error| match error {
            dat_host::Error::Refused(error) => Err(error).during(call),
            error => Err(Failure::operation(format!("{call} failed"), error)),
        })
    }
}
