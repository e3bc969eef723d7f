//! A lock that outlives a panic of its holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex; a panic of a holder leaves valid values.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
