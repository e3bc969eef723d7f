//! A value protected by a raw lock.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::RawLock;

/// A value that only the holder of the lock can access.
///
/// Lock and value are next to each other, so one address leads to both.
#[repr(C)]
pub struct Mutex<L, T> {
    lock: L,
    /// Accesses to the value, for loom to detect simultaneous ones.
    #[cfg(loom)]
    accesses: super::loom_sync::Accesses,
    value: UnsafeCell<T>,
}

#[expect(unsafe_code)]
// SAFETY: the value is accessed only through a guard, and one guard exists at a time (contract of
// `RawLock`). So sharing the mutex only moves access to the value from thread to thread.
unsafe impl<L: RawLock + Sync, T: Send> Sync for Mutex<L, T> {}

impl<L: RawLock, T> Mutex<L, T> {
    /// Creates a mutex with an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            lock: L::INIT,
            #[cfg(loom)]
            accesses: super::loom_sync::Accesses::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value while holding the lock.
    ///
    /// `f` must not lock the same mutex again, directly or through a waker or an agent: that is a
    /// deadlock.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    /// Locks the mutex until the guard is dropped.
    ///
    /// For paths where a closure costs one call too many.
    ///
    /// Guards are dropped in the opposite order of their creation.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn lock(&self) -> Guard<'_, L, T> {
        #[expect(unsafe_code)]
        // SAFETY: the guard releases the lock once, when it is dropped. Guards are passed at most
        // to functions that their creator calls, and are dropped in the opposite order of their
        // creation.
        let state = unsafe { self.lock.acquire() };
        Guard {
            mutex: self,
            state: ManuallyDrop::new(state),
        }
    }
}

#[cfg(feature = "std")]
impl<T> Mutex<super::HostLock, T> {
    /// As [`with`](Self::with), unless the lock is held: a child of `fork` finds the locks that
    /// threads of its parent held, and nobody releases them.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock.try_acquire().then(|| {
            let mut guard = Guard {
                mutex: self,
                state: ManuallyDrop::new(()),
            };
            f(&mut guard)
        })
    }
}

/// Access to the value while the lock is held.
pub(crate) struct Guard<'a, L: RawLock, T> {
    mutex: &'a Mutex<L, T>,
    state: ManuallyDrop<L::State<'a>>,
}

impl<L: RawLock, T> Deref for Guard<'_, L, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        #[cfg(loom)]
        self.mutex.accesses.read();
        #[expect(unsafe_code)]
        // SAFETY: the lock is held as long as the guard lives, so no other guard exists, and no
        // reference to the value except those borrowed from this guard.
        unsafe {
            &*self.mutex.value.get()
        }
    }
}

impl<L: RawLock, T> DerefMut for Guard<'_, L, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        #[cfg(loom)]
        self.mutex.accesses.write();
        #[expect(unsafe_code)]
        // SAFETY: as in `deref`; `&mut self` excludes other borrows of this guard.
        unsafe {
            &mut *self.mutex.value.get()
        }
    }
}

impl<L: RawLock, T> Drop for Guard<'_, L, T> {
    #[inline]
    fn drop(&mut self) {
        #[expect(unsafe_code)]
        // SAFETY: the state is taken only here, and came from `acquire` of this lock.
        unsafe {
            self.mutex.lock.release(ManuallyDrop::take(&mut self.state));
        }
    }
}
