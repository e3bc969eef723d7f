//! Results of calls as C has them.

use core::ffi::c_int;
use std::io;
use std::sync::Arc;

use dat_core::backend::BackendError;
use dat_storage::heap::has_memory;
use nix::errno::Errno;

/// Result of a call.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// Lets a call make an object only while there is memory.
///
/// # Errors
/// `ENOMEM`: the system has none, and the reserve is in use.
pub(crate) fn ask_for_memory() -> Result<()> {
    require(has_memory(), Errno::ENOMEM)
}

/// Lets a call go on if a condition is met.
///
/// # Errors
/// The error that is passed.
pub(crate) fn require(is_met: bool, error: Errno) -> Result<()> {
    is_met.then_some(()).ok_or(error)
}

/// Lets an object end that no other object uses.
///
/// # Errors
/// `EBUSY`: there are further holders.
pub(crate) fn require_unused<T>(users: &Arc<T>) -> Result<()> {
    require(Arc::strong_count(users) == 1, Errno::EBUSY)
}

/// Makes a call; returns 0, or the number of the error.
pub(crate) fn code(call: impl FnOnce() -> Result<()>) -> c_int {
    let failed = call().inspect_err(|error| error.set()).err();
    failed.map_or(0, |error| error as c_int)
}

/// Makes a call; returns its number, or -1 and sets the error.
pub(crate) fn minus(call: impl FnOnce() -> Result<c_int>) -> c_int {
    or(-1, call)
}

/// Makes a call; returns 0, or -1 and sets the error.
pub(crate) fn done(call: impl FnOnce() -> Result<()>) -> c_int {
    minus(|| call().map(|()| 0))
}

/// Makes a call; returns its value, or `none` and sets the error.
pub(crate) fn or<T>(none: T, call: impl FnOnce() -> Result<T>) -> T {
    call().unwrap_or_else(|error| {
        error.set();
        none
    })
}

/// Returns a count as programs have it.
pub(crate) fn count(count: u32) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Returns the error of the system for a refusal of the adapter.
pub(crate) const fn refused(error: BackendError) -> Errno {
    match error {
        BackendError::Resources => Errno::ENOMEM,
        BackendError::Descriptors => Errno::EMFILE,
        BackendError::Prohibited => Errno::EPERM,
        BackendError::NotSupported => Errno::EOPNOTSUPP,
        BackendError::QualifierInUse => Errno::EADDRINUSE,
        BackendError::QualifierUnavailable => Errno::EADDRNOTAVAIL,
        BackendError::Unreachable => Errno::EHOSTUNREACH,
        BackendError::Device => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

/// Returns the number of an error of the standard library.
pub(crate) fn of_system(error: io::Error) -> Errno {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => Errno::from_raw(number),
        (None, io::ErrorKind::AddrInUse) => Errno::EADDRINUSE,
        (None, io::ErrorKind::AddrNotAvailable) => Errno::EADDRNOTAVAIL,
        (None, io::ErrorKind::OutOfMemory) => Errno::ENOMEM,
        (None, _) => Errno::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_as_each_call_tells_them() {
        assert_eq!(code(|| Ok(())), 0);
        assert_eq!(code(|| Err(Errno::EBUSY)), Errno::EBUSY as c_int);
        assert_eq!(Errno::last(), Errno::EBUSY);
        assert_eq!((minus(|| Ok(7)), done(|| Ok(()))), (7, 0));
        assert_eq!(done(|| Err(Errno::EINVAL)), -1);
        assert_eq!(Errno::last(), Errno::EINVAL);
    }
}
