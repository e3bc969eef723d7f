//! Errors of opening a device.

use std::fmt;
use std::io;

use dat_core::backend::BackendError;

/// A device that cannot be opened, or devices that cannot be listed.
///
/// Prints as the reason, without the name of the device.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    cause: Cause,
}

/// The kind of a failure; [`Cause`] has the details.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// The name has another form than this one.
    Malformed(&'static str),
    /// This build has no such backend. The feature of that name adds it, if it is known.
    NotBuiltIn {
        /// The scheme of the address.
        scheme: String,
        /// The feature that adds the scheme; `None` if there is none.
        feature: Option<&'static str>,
    },
    /// The host has no such device, or it cannot be opened.
    NoSuchDevice,
    /// The host has no such address or interface, or the device has no address.
    AddressNotThere,
    /// Another program has the address.
    InUse,
    /// The system does not permit it.
    Permission,
    /// Memory, threads or device objects are exhausted.
    Resources,
    /// The process, or the host, has no file descriptor left.
    Descriptors,
    /// The system fails for another reason.
    System,
}

/// The error that a failure came from.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// There is none but the kind.
    None,
    /// That of the system, with its number if it has one.
    System(io::Error),
    /// That of the backend.
    Backend(BackendError),
}

impl OpenError {
    pub(crate) const fn of(kind: OpenErrorKind) -> Self {
        let cause = Cause::None;
        Self { kind, cause }
    }

    pub(crate) const fn malformed(form: &'static str) -> Self {
        Self::of(OpenErrorKind::Malformed(form))
    }

    /// Creates the error for a scheme that this build cannot open; `known` are all schemes.
    pub(crate) fn not_built_in(scheme: &str, known: &[&'static str]) -> Self {
        Self::of(OpenErrorKind::NotBuiltIn {
            scheme: scheme.to_owned(),
            feature: known.iter().copied().find(|known| *known == scheme),
        })
    }

    /// Creates the error of the system for a name that has this form.
    pub(crate) fn system(error: io::Error, form: &'static str) -> Self {
        let kind = match (error.kind(), error.raw_os_error()) {
            (_, Some(libc::EMFILE | libc::ENFILE)) => OpenErrorKind::Descriptors,
            (_, Some(libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN)) => OpenErrorKind::Resources,
            (io::ErrorKind::OutOfMemory, _) => OpenErrorKind::Resources,
            (io::ErrorKind::InvalidInput, None) => OpenErrorKind::Malformed(form),
            (io::ErrorKind::AddrNotAvailable, _) => OpenErrorKind::AddressNotThere,
            (io::ErrorKind::AddrInUse, _) => OpenErrorKind::InUse,
            (io::ErrorKind::PermissionDenied, _) => OpenErrorKind::Permission,
            (io::ErrorKind::NotFound, _) => OpenErrorKind::NoSuchDevice,
            _ => OpenErrorKind::System,
        };
        let cause = Cause::System(error);
        Self { kind, cause }
    }

    /// Returns what is wrong.
    pub const fn kind(&self) -> &OpenErrorKind {
        &self.kind
    }

    /// Returns the cause.
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns kind and cause.
    pub fn into_parts(self) -> (OpenErrorKind, Cause) {
        (self.kind, self.cause)
    }
}

impl From<BackendError> for OpenError {
    fn from(error: BackendError) -> Self {
        Self {
            kind: match error {
                BackendError::Resources => OpenErrorKind::Resources,
                BackendError::Descriptors => OpenErrorKind::Descriptors,
                BackendError::Prohibited => OpenErrorKind::Permission,
                BackendError::Address => OpenErrorKind::AddressNotThere,
                _ => OpenErrorKind::NoSuchDevice,
            },
            cause: Cause::Backend(error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Cause::System(error) = &self.cause {
            return error.fmt(f);
        }
        match &self.kind {
            OpenErrorKind::Malformed(form) => write!(f, "the form is {form}"),
            OpenErrorKind::NotBuiltIn { scheme, feature } => match feature {
                Some(feature) => write!(f, "this build lacks the feature `{feature}`"),
                None => write!(f, "there is no scheme `{scheme}`"),
            },
            OpenErrorKind::NoSuchDevice => {
                f.write_str("the device does not exist, or this user has no permission to open it")
            }
            OpenErrorKind::AddressNotThere => f.write_str("its network interface has no address"),
            OpenErrorKind::InUse => f.write_str("another program uses the address"),
            OpenErrorKind::Permission => f.write_str("this user has no permission to open it"),
            OpenErrorKind::Resources => f.write_str("memory or threads are exhausted"),
            OpenErrorKind::Descriptors => f.write_str("no file descriptor is left"),
            OpenErrorKind::System => f.write_str("the system refuses it"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::System(error) => error.source(),
            Cause::None | Cause::Backend(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_keep_their_number() {
        for (number, kind) in [
            (libc::EMFILE, OpenErrorKind::Descriptors),
            (libc::ENOMEM, OpenErrorKind::Resources),
            (libc::EADDRINUSE, OpenErrorKind::InUse),
            (libc::EADDRNOTAVAIL, OpenErrorKind::AddressNotThere),
            (libc::EACCES, OpenErrorKind::Permission),
            (libc::EINVAL, OpenErrorKind::System),
        ] {
            let error = OpenError::system(io::Error::from_raw_os_error(number), "form");
            assert_eq!(*error.kind(), kind);
            let Cause::System(system) = error.cause() else {
                panic!("{error:?}");
            };
            assert_eq!(system.raw_os_error(), Some(number));
        }
    }

    #[test]
    fn errors_of_backends_have_a_kind() {
        for (error, kind) in [
            (BackendError::Device, OpenErrorKind::NoSuchDevice),
            (BackendError::Address, OpenErrorKind::AddressNotThere),
            (BackendError::Prohibited, OpenErrorKind::Permission),
            (BackendError::Descriptors, OpenErrorKind::Descriptors),
        ] {
            assert_eq!(*OpenError::from(error).kind(), kind);
        }
    }
}
