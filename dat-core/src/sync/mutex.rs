//! A value protected by a raw lock.
//!
//! # Parking
//! A change that takes long must not keep a lock that masks interrupts. A lock that parks has a
//! [`Mark`]. [`park`](Mutex::park) sets the mark under the lock, releases the lock, and
//! gives access to the value; its end takes the lock again and removes the mark. That is as
//! exclusive as a guard:
//! 1. The mark is accessed under the lock only, and every function that takes the lock reads it
//!    before it returns a guard or a [`Parked`]. On a mark it returns neither.
//!    [`while_locked`](Mutex::while_locked) returns neither and does not read it.
//! 2. The mark is set while the caller has the lock and the value has no mark. So no guard and no
//!    other `Parked` exists then, and by 1 none comes into being before the mark is removed.
//! 3. Only the drop of the `Parked` that set the mark removes it, when its borrows have ended.
//! 4. It does so under the lock: whoever takes the lock next sees all that was written to the
//!    value.
//!
//! `parking.rs` of the models proves this, and that it fails if a mark is not read.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::{Mark, RawLock};

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
// SAFETY: the value is accessed only through a guard or a `Parked`, of which one exists at a time
// (contract of `RawLock`, and the module's documentation). So sharing the mutex only moves access
// to the value from thread to thread.
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

    /// Runs `f` while holding the lock, also while the value is parked; `f` has no access to it.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn while_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.guard();
        f()
    }

    /// Locks the mutex until the guard is dropped.
    ///
    /// For paths where a closure costs one call too many. Waits while the value is parked, so the
    /// caller has the control lock or the value is never parked: a context that interrupts the
    /// parking one would wait for ever.
    ///
    /// Guards are dropped in the opposite order of their creation.
    #[inline]
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn lock(&self) -> Guard<'_, L, T> {
        if L::PARKS {
            return self.wait();
        }
        self.guard()
    }

    /// Locks the mutex, unless the value is parked; the end of the parking then tells.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn lock_unparked(&self) -> Option<Guard<'_, L, T>> {
        if L::PARKS {
            return self.try_lock_marked();
        }
        Some(self.guard())
    }

    /// Locks the mutex, unless the context that holds it is interrupted by this one.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, L, T>> {
        #[expect(unsafe_code)]
        // SAFETY: as in `guard`.
        let state = unsafe { self.lock.try_acquire() }?;
        let guard = Guard {
            mutex: self,
            state: ManuallyDrop::new(state),
        };
        (!guard.is_parked()).then_some(guard)
    }

    /// Takes exclusive access until the result is dropped, without the lock if it parks.
    ///
    /// The caller holds the control lock, so that contexts with that lock never wait for the mark.
    #[cfg_attr(feature = "compact", inline(never))]
    #[cfg_attr(not(feature = "compact"), inline)]
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn park(&self) -> Parked<'_, L, T> {
        self.park_unless(|_| false)
    }

    /// As `park`, but keeps the lock if `keeps` says so.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn park_unless(&self, keeps: impl FnOnce(&T) -> bool) -> Parked<'_, L, T> {
        let guard = self.lock();
        let guard = match self.lock.mark() {
            Some(mark) if !keeps(&guard) => {
                mark.set();
                drop(guard);
                None
            }
            _ => Some(guard),
        };
        Parked {
            mutex: self,
            guard,
            exclusive: PhantomData,
        }
    }

    /// Acquires the lock and creates its guard; on a lock that parks, the caller reads the mark.
    #[cfg_attr(loom, track_caller)]
    fn guard(&self) -> Guard<'_, L, T> {
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

    #[inline(never)]
    #[cfg_attr(loom, track_caller)]
    fn wait(&self) -> Guard<'_, L, T> {
        loop {
            if let Some(guard) = self.try_lock_marked() {
                return guard;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(all(feature = "fuzz_sched", not(loom)))]
            super::fuzz_sched::tell(super::Access::Again);
            core::hint::spin_loop();
        }
    }

    #[inline(never)]
    fn try_lock_marked(&self) -> Option<Guard<'_, L, T>> {
        let guard = self.guard();
        (!guard.is_parked()).then_some(guard)
    }
}

/// Exclusive access to a value, with the lock or with the value's mark.
pub(crate) struct Parked<'a, L: RawLock, T> {
    mutex: &'a Mutex<L, T>,
    /// `None` if the value is marked.
    guard: Option<Guard<'a, L, T>>,
    exclusive: PhantomData<&'a mut T>,
}

impl<L: RawLock, T> Parked<'_, L, T> {
    /// Ends the parking; returns true if a context was refused meanwhile.
    pub(crate) fn end(self) -> bool {
        if self.guard.is_some() {
            return false;
        }
        // Without a guard, nothing is left to drop.
        ManuallyDrop::new(self).remove_mark()
    }

    /// Removes the mark; returns true if a context was refused.
    ///
    /// Nothing accesses the value by `self` afterwards.
    #[inline(never)]
    fn remove_mark(&self) -> bool {
        // The guard accesses only the mark.
        let guard = self.mutex.guard();
        guard.mutex.lock.mark().is_some_and(Mark::remove)
    }
}

impl<L: RawLock, T> Drop for Parked<'_, L, T> {
    #[inline]
    fn drop(&mut self) {
        if self.guard.is_none() {
            let _missed = self.remove_mark();
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

impl<L: RawLock, T> Guard<'_, L, T> {
    /// Returns true if the value is parked, and notes the refusal; the guard is then dropped.
    fn is_parked(&self) -> bool {
        self.mutex.lock.mark().is_some_and(Mark::refuses)
    }
}

macro_rules! give_access {
    ($($holder:ident)*) => {$(
        impl<L: RawLock, T> Deref for $holder<'_, L, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                #[cfg(loom)]
                self.mutex.accesses.read();
                #[expect(unsafe_code)]
                // SAFETY: the lock is held, or the value is marked, as long as the holder lives. So
                // no other holder exists, and no reference to the value except those borrowed from
                // this one.
                unsafe {
                    &*self.mutex.value.get()
                }
            }
        }

        impl<L: RawLock, T> DerefMut for $holder<'_, L, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                #[cfg(loom)]
                self.mutex.accesses.write();
                #[expect(unsafe_code)]
                // SAFETY: as in `deref`; `&mut self` excludes other borrows of the holder.
                unsafe {
                    &mut *self.mutex.value.get()
                }
            }
        }
    )*};
}

give_access!(Guard Parked);

impl<L: RawLock, T> Drop for Guard<'_, L, T> {
    #[inline]
    fn drop(&mut self) {
        #[expect(unsafe_code)]
        // SAFETY: the state is taken only here, and came from `acquire` or `try_acquire` of this
        // lock.
        unsafe {
            self.mutex.lock.release(ManuallyDrop::take(&mut self.state));
        }
    }
}
