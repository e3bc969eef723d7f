//! Failures of a command: the problem, its reason and a remedy.

use std::fmt;
use std::io;
use std::path::Path;

use dat_core::{Cause, ErrorKind};
use serde::Serialize;

use crate::limits::{self, Reached};

/// The kinds of failure, with one exit code each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// An operation failed, or its outcome is not the specified one.
    Operation,
    /// An address of a peer was not reached; another one may be.
    #[serde(rename = "operation")]
    Unreached,
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
            Self::Operation | Self::Unreached | Self::Memory => 1,
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

    /// Builds a failure of a call of the system, with a remedy for the error.
    pub(crate) fn system(what: impl Into<String>, error: &io::Error) -> Self {
        let failure = Self {
            kind: match error.kind() {
                io::ErrorKind::OutOfMemory => FailureKind::Memory,
                _ => FailureKind::Operation,
            },
            what: what.into(),
            why: error.to_string(),
            remedy: system_remedy(error).into(),
        };
        match limits::is_for_descriptors(error) {
            true => failure.because(limits::descriptors()),
            false => failure,
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
        if limits::is_for_descriptors(error) {
            let failure = Self::file_because(doing, path, error.to_string(), system_remedy(error));
            return failure.because(limits::descriptors());
        }
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "check the spelling, and that the directory exists",
            io::ErrorKind::PermissionDenied => {
                "check the permissions of the file and its directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or choose another file system"
            }
            io::ErrorKind::ReadOnlyFilesystem => "choose a file system that can be written",
            io::ErrorKind::FileTooLarge => {
                "raise the limit of file sizes (`ulimit -f`), or choose another file system"
            }
            io::ErrorKind::OutOfMemory => system_remedy(error),
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
        self.map_err(|error| of_call(call, error))
    }
}

impl<T> During<T> for dat_host::Result<T> {
    fn during(self, call: &str) -> Result<T> {
        self.map_err(|error| match error {
            dat_host::Error::Refused(error) => of_call(call, error),
            dat_host::Error::System(error) => Failure::system(format!("{call} failed"), &error),
            error => {
                let failure = Failure::operation(format!("{call} failed"), &error);
                let remedy = match error {
                    dat_host::Error::Connection(_)
                    | dat_host::Error::Rejected(_)
                    | dat_host::Error::Failed(_) => {
                        "check the network and the other side, and run the command again"
                    }
                    dat_host::Error::Closed => "check the device, and run the command again",
                    _ => return failure,
                };
                Failure {
                    remedy: remedy.into(),
                    ..failure
                }
            }
        })
    }
}

/// Builds the failure of a call that the interface refused.
pub(crate) fn of_call(call: &str, error: dat_core::Error) -> Failure {
    let failure = Failure::operation(format!("{call} failed"), error);
    let failure = match call_remedy(error) {
        Some(remedy) => Failure {
            remedy: remedy.into(),
            ..failure
        },
        None => failure,
    };
    let kind = match error.kind() {
        // Another address of the peer may do.
        ErrorKind::InvalidAddress => FailureKind::Unreached,
        _ => failure.kind,
    };
    Failure { kind, ..failure }.because(limits::reached(error))
}

/// Returns the remedy for an error of the interface that has its cause outside of this program.
const fn call_remedy(error: dat_core::Error) -> Option<&'static str> {
    Some(match error.cause() {
        Cause::NoDescriptor => DESCRIPTORS,
        Cause::Prohibited => PERMISSIONS,
        Cause::NoRoute => {
            "check the address, and that the network interface is up and has a route; or select \
            another --device"
        }
        Cause::AddressKind => {
            "use an address of one host, in the family of the device, or select another --device"
        }
        Cause::DeviceGone => "check the device, and run the command again",
        Cause::DeviceRefused if matches!(error.kind(), ErrorKind::InsufficientResources) => {
            "free some memory, end other programs that use the device, or use smaller sizes"
        }
        _ => return None,
    })
}

const DESCRIPTORS: &str = "end other programs, or raise the limit of open files of the process \
(`ulimit -n`) or of the host (`sysctl fs.file-max`)";
const PERMISSIONS: &str = "check the permissions of this user, firewalls, and filters of system \
calls (seccomp), as containers have";

/// Returns the remedy for an error of a call of the system that concerns no file.
fn system_remedy(error: &io::Error) -> &'static str {
    if limits::is_for_descriptors(error) {
        return DESCRIPTORS;
    }
    match error.kind() {
        io::ErrorKind::OutOfMemory => {
            "free some memory, or raise the limits of memory (`ulimit -v`, that of the container)"
        }
        io::ErrorKind::PermissionDenied => PERMISSIONS,
        // Of a thread; no other call of this program waits so.
        io::ErrorKind::WouldBlock => {
            "raise the limit of processes and threads (`ulimit -u`, or that of the container), or \
            end other programs"
        }
        io::ErrorKind::AddrInUse => "stop the other program, or use another port",
        io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable => {
            "check the address, and that the network interface is up"
        }
        io::ErrorKind::Unsupported => "use another address: this host lacks the protocol",
        _ if limits::is_of_family(error) => "use another address: this host lacks its family",
        _ if limits::lacks_buffers(error) => "free some memory, and run the command again",
        _ => "check this host's log (`dmesg`), and run the command again",
    }
}
