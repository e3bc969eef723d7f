//! What a command says when it cannot do what it was asked: what, why, and what to do about it.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::limits::{self, Reached};

/// The kinds of failure, one exit code each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// An operation failed, or its outcome is not the specified one.
    Operation,
    /// The arguments make no sense together.
    Usage,
    /// A file cannot be read or written.
    File,
    /// There is not enough memory.
    Memory,
    /// A signal asked for an end.
    Interrupted,
}

impl FailureKind {
    /// The exit code of the program.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Operation | Self::Memory => 1,
            Self::Usage => 2,
            Self::File => 3,
            // What shells show for SIGINT, and what it is where there are no signals.
            Self::Interrupted => 130,
        }
    }
}

/// A failure of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// What could not be done.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
    /// What the user can do about it.
    pub(crate) remedy: String,
}

/// The way a failure of a command is returned.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An operation of the interface failed.
    pub(crate) fn operation(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            kind: FailureKind::Operation,
            what: what.into(),
            why: why.to_string(),
            remedy: "run `dat tour`: if it fails as well, the build is broken; otherwise please report this"
                .into(),
        }
    }

    /// The same, if a limit of the system is behind it.
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

    /// The arguments cannot be used.
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

    /// A file cannot be used.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        // Wherever the path goes on, it does not get there.
        let link = path
            .ancestors()
            .find(|place| place.is_symlink() && place.metadata().is_err());
        if let Some(link) = link
            && error.kind() != io::ErrorKind::PermissionDenied
        {
            let remedy = format!("look where the symbolic link {} leads", link.display());
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
                "make room, or choose another place"
            }
            _ => "check the file and the file system it is on",
        };
        Self::file_because(doing, path, error.to_string(), remedy)
    }

    /// A file cannot be used, for a reason that was found before trying.
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

/// Says what was being done when a call of the interface failed.
pub(crate) trait During<T> {
    /// Turns the error into a failure of the program.
    fn during(self, call: &str) -> Result<T>;
}

impl<T> During<T> for dat_core::Result<T> {
    fn during(self, call: &str) -> Result<T> {
        self.map_err(|error| {
            let reached = limits::behind(error);
            Failure::operation(format!("{call} failed"), error).because(reached)
        })
    }
}
