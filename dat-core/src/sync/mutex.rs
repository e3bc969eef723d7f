//! A value behind a raw lock.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::RawLock;

/// A value that only the holder of the lock can reach.
///
/// The lock is where the mutex is, so that one address leads to both.
#[repr(C)]
pub struct Mutex<L, T> {
    lock: L,
    /// Accesses to the value, for the model checker to find those at a time.
    #[cfg(loom)]
    accesses: super::explored::Accesses,
    value: UnsafeCell<T>,
}

#[expect(unsafe_code)]
// SAFETY: the value is reached through a guard alone, one guard at a time (contract of `RawLock`),
// so sharing the mutex only ever moves access to the value from thread to thread.
unsafe impl<L: RawLock + Sync, T: Send> Sync for Mutex<L, T> {}

impl<L: RawLock, T> Mutex<L, T> {
    /// A value behind an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            lock: L::INIT,
            #[cfg(loom)]
            accesses: super::explored::Accesses::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value while holding the lock.
    ///
    /// `f` must not come back to the same mutex, directly or by a waker or an agent: that is a dead-lock.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.hold())
    }

    /// Holds the lock until the guard is dropped; for paths on which a closure would be one call too
    /// many. Guards are dropped in the opposite order of their making.
    #[inline(always)]
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn hold(&self) -> Guard<'_, L, T> {
        #[expect(unsafe_code)]
        // SAFETY: the guard releases the lock once, when it is dropped; guards go from the function that
        // made them to functions it calls at most, and drop in the opposite order of their making.
        let state = unsafe { self.lock.acquire() };
        Guard {
            mutex: self,
            state: ManuallyDrop::new(state),
        }
    }
}

/// The value, as long as the lock is held.
pub(crate) struct Guard<'a, L: RawLock, T> {
    mutex: &'a Mutex<L, T>,
    state: ManuallyDrop<L::State<'a>>,
}

impl<L: RawLock, T> Deref for Guard<'_, L, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        #[cfg(loom)]
        self.mutex.accesses.read();
        #[expect(unsafe_code)]
        // SAFETY: the lock is held as long as the guard lives, so no other guard, and with it no
        // other reference to the value, exists but those borrowed from this guard.
        unsafe {
            &*self.mutex.value.get()
        }
    }
}

impl<L: RawLock, T> DerefMut for Guard<'_, L, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        #[cfg(loom)]
        self.mutex.accesses.write();
        #[expect(unsafe_code)]
        // SAFETY: as in `deref`; `&mut self` keeps other borrows of this guard away.
        unsafe {
            &mut *self.mutex.value.get()
        }
    }
}

impl<L: RawLock, T> Drop for Guard<'_, L, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[expect(unsafe_code)]
        // SAFETY: the state is taken here only, and came from `acquire` of this lock.
        unsafe {
            self.mutex.lock.release(ManuallyDrop::take(&mut self.state));
        }
    }
}
