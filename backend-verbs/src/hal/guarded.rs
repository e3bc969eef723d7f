//! A value under the lock of the data path.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use dat_core::sync::{HostLock, RawLock};

/// A value that only one thread at a time can reach.
pub(crate) struct Guarded<T> {
    lock: HostLock,
    value: UnsafeCell<T>,
}

// SAFETY: only a guard reaches the value, and there is one guard at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T: Default> Default for Guarded<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> core::fmt::Debug for Guarded<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Guarded").finish_non_exhaustive()
    }
}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: HostLock::INIT,
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the value is free and locks it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: the guard releases the lock once, when it is dropped. The guard is private to the
        // crate, which drops guards in the function that made them.
        unsafe { self.lock.acquire() };
        Guard(self)
    }
}

/// Exclusive access to the value.
pub(crate) struct Guard<'a, T>(&'a Guarded<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and the reference borrows from it.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: acquired when the guard was made.
        unsafe { self.0.lock.release(()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn threads_lock_the_value_in_turn() {
        let counted = Arc::new(Guarded::new(0_u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    for _ in 0..5000 {
                        let mut counted = counted.lock();
                        let before = *counted;
                        if before.is_multiple_of(500) {
                            thread::yield_now();
                        }
                        *counted = before + 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(*counted.lock(), 20_000);
    }
}
