//! Results of calls as C has them.

use core::ffi::c_int;

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
    has_memory().then_some(()).ok_or(Errno::ENOMEM)
}

/// Returns 0, or the number of the error.
pub(crate) fn code(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            error.set();
            error as c_int
        }
    }
}

/// Returns the number, or -1 and sets the error.
pub(crate) fn minus(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// Returns 0, or -1 and sets the error.
pub(crate) fn done(result: Result<()>) -> c_int {
    minus(result.map(|()| 0))
}

/// Returns the value, or `none` and sets the error.
pub(crate) fn or<T>(result: Result<T>, none: T) -> T {
    result.unwrap_or_else(|error| {
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
pub(crate) fn of_system(error: &std::io::Error) -> Errno {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => Errno::from_raw(number),
        (None, std::io::ErrorKind::AddrInUse) => Errno::EADDRINUSE,
        (None, std::io::ErrorKind::AddrNotAvailable) => Errno::EADDRNOTAVAIL,
        (None, std::io::ErrorKind::OutOfMemory) => Errno::ENOMEM,
        (None, _) => Errno::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_as_each_call_tells_them() {
        assert_eq!(code(Ok(())), 0);
        assert_eq!(code(Err(Errno::EBUSY)), Errno::EBUSY as c_int);
        assert_eq!(Errno::last(), Errno::EBUSY);
        assert_eq!((minus(Ok(7)), done(Ok(()))), (7, 0));
        assert_eq!(done(Err(Errno::EINVAL)), -1);
        assert_eq!(Errno::last(), Errno::EINVAL);
    }
}
