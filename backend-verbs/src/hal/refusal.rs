//! What the error numbers of the libraries mean to the core.

use std::io;

use dat_core::backend::BackendError;

use crate::device::lacks_descriptors;

/// The meaning of the error that the last call left.
pub(super) fn last() -> BackendError {
    meaning(&io::Error::last_os_error())
}

/// The meaning of an error number that a call returned.
pub(super) fn of(number: i32) -> BackendError {
    meaning(&io::Error::from_raw_os_error(number))
}

/// `Ok` for 0.
pub(super) fn check(number: i32) -> Result<(), BackendError> {
    if number == 0 { Ok(()) } else { Err(of(number)) }
}

/// As `check`, for calls that answer -1 and leave the number behind.
pub(super) fn check_last(answer: i32) -> Result<(), BackendError> {
    if answer == 0 { Ok(()) } else { Err(last()) }
}

/// As `check_last`, for calls that open files: the libraries call a device that cannot be opened for want of descriptors one that is not there.
pub(super) fn check_opening(answer: i32) -> Result<(), BackendError> {
    check_last(answer).map_err(|error| match error {
        BackendError::Device if lacks_descriptors() => BackendError::Resources,
        other => other,
    })
}

fn meaning(error: &io::Error) -> BackendError {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => BackendError::NotSupported,
        Some(libc::EADDRINUSE) => BackendError::QualifierInUse,
        Some(
            libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EDESTADDRREQ,
        ) => BackendError::Address,
        Some(libc::EIO | libc::ENODEV | libc::ENXIO) => BackendError::Device,
        Some(libc::EBUSY | libc::EISCONN | libc::EEXIST) => BackendError::State,
        // Sizes were checked by the core, so what the device finds invalid is more than it has.
        _ => BackendError::Resources,
    }
}
