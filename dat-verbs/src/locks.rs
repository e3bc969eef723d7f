//! Locks of the library.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic: no change of a value is left half done by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
