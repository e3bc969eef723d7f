//! Lock around all devices: the system's mutex with `std`, a spin lock without.

#[cfg(feature = "std")]
mod kind {
    use std::sync::PoisonError;

    pub(crate) use alloc::sync::Arc;
    pub(crate) use std::sync::{Mutex, MutexGuard as Guard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(feature = "std"))]
mod kind {
    pub(crate) use portable_atomic_util::Arc;
    pub(crate) use spin::mutex::{SpinMutex as Mutex, SpinMutexGuard as Guard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
        mutex.lock()
    }
}

pub(crate) use kind::{Arc, Guard, Mutex, lock};
