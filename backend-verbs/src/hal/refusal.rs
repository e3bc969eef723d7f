//! Translation of the libraries' error numbers into the core's errors.

use std::io;

use dat_core::backend::BackendError;

use crate::device::lacks_descriptors;

/// Returns the meaning of `errno` after a failed call.
pub(super) fn last() -> BackendError {
    meaning(&io::Error::last_os_error())
}

/// Returns the meaning of an error number that a call returned.
pub(super) fn of(number: i32) -> BackendError {
    meaning(&io::Error::from_raw_os_error(number))
}

/// Returns `Ok` for 0, else the meaning of the error number.
pub(super) fn check(number: i32) -> Result<(), BackendError> {
    if number == 0 { Ok(()) } else { Err(of(number)) }
}

/// As `check`, for calls that return -1 and set `errno`.
pub(super) fn check_last(answer: i32) -> Result<(), BackendError> {
    if answer == 0 { Ok(()) } else { Err(last()) }
}

/// As `check_last`, for calls that open files.
///
/// If no descriptor is left, the libraries report a device as missing. Here that is `Descriptors`.
pub(super) fn check_opening(answer: i32) -> Result<(), BackendError> {
    check_last(answer).map_err(|error| match error {
        BackendError::Device if lacks_descriptors() => BackendError::Descriptors,
        other => other,
    })
}

/// Returns true if the process, or the host, has no descriptor left.
///
/// An eventfd can be refused for other reasons too, as for want of memory.
pub(crate) fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the meaning of an error of the operating system.
pub(super) fn meaning(error: &io::Error) -> BackendError {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => BackendError::NotSupported,
        Some(libc::EADDRINUSE) => BackendError::QualifierInUse,
        Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EDESTADDRREQ) => {
            BackendError::Address
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => BackendError::Unreachable,
        Some(libc::EIO | libc::ENODEV | libc::ENXIO) => BackendError::Device,
        Some(libc::EMFILE | libc::ENFILE) => BackendError::Descriptors,
        Some(libc::EPERM | libc::EACCES) => BackendError::Prohibited,
        Some(libc::EBUSY | libc::EISCONN | libc::EEXIST) => BackendError::State,
        // The core has checked the sizes, so a size that the device finds invalid exceeds its
        // limits.
        _ => BackendError::Resources,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: IAQ-03
    #[test]
    fn only_a_limit_of_open_files_is_a_lack_of_descriptors() {
        let is_for = |number| is_for_descriptors(&io::Error::from_raw_os_error(number));
        assert!(is_for(libc::EMFILE) && is_for(libc::ENFILE));
        for other in [
            libc::ENOMEM,
            libc::EPERM,
            libc::EINVAL,
            libc::ENOSYS,
            libc::ENODEV,
        ] {
            assert!(!is_for(other), "{other}");
        }
    }
}
