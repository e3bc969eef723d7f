//! A value behind a raw lock.

use core::cell::UnsafeCell;

use super::RawLock;

/// A value that only the holder of the lock can reach.
pub(crate) struct Mutex<L, T> {
    lock: L,
    value: UnsafeCell<T>,
}

#[expect(unsafe_code)]
// SAFETY: the value is reached through `with` alone, one closure at a time (contract of `RawLock`),
// so sharing the mutex only ever moves access to the value from thread to thread.
unsafe impl<L: RawLock + Sync, T: Send> Sync for Mutex<L, T> {}

impl<L: RawLock, T> Mutex<L, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: L::INIT,
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value while holding the lock.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.lock.with(|| {
            #[expect(unsafe_code)]
            // SAFETY: the contract of `RawLock` says that no other closure of this lock runs now,
            // and this is the only place that makes a reference to the value.
            let value = unsafe { &mut *self.value.get() };
            f(value)
        })
    }
}
