//! The raw locks the core can be built on.

use core::cell::Cell;

/// Mutual exclusion, closure style.
///
/// Locks are never held across a call out of the core, are taken in the order
/// interface adapter < endpoint < receive queue < event dispatcher < notification object, and are
/// never taken twice by one context; an implementation may dead-lock if they are.
///
/// # Safety
/// Between entry and exit of the closure of one `with` no other closure of the same lock may run,
/// on any thread or interrupt level, and what one closure wrote must be visible to the next.
#[expect(unsafe_code)]
// UNSAFETY: the `Mutex` hands out `&mut` on the strength of this promise.
pub unsafe trait RawLock {
    /// An unlocked lock.
    const INIT: Self;

    /// Runs `f` while holding the lock.
    fn with<R>(&self, f: impl FnOnce() -> R) -> R;
}

/// Marks a lock as held; entering twice never returns, as a dead-lock does.
#[derive(Debug)]
struct Held(Cell<bool>);

impl Held {
    const fn new() -> Self {
        Self(Cell::new(false))
    }

    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        while self.0.replace(true) {
            core::hint::spin_loop();
        }
        let _release = Release(&self.0);
        f()
    }
}

struct Release<'a>(&'a Cell<bool>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// No lock: for an interface adapter that stays on one thread. It makes the adapter `!Sync`.
#[derive(Debug)]
pub struct NoLock(Held);

#[expect(unsafe_code)]
// SAFETY: the `Cell` makes the type `!Sync`, so all closures run on one thread; `Held` never lets a
// second closure start inside the first.
unsafe impl RawLock for NoLock {
    const INIT: Self = Self(Held::new());

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.0.with(f)
    }
}

/// A spin lock, for threads that do not preempt each other for long. Never share it with an interrupt handler.
#[cfg(feature = "spin")]
#[derive(Debug)]
pub struct SpinLock(spin::mutex::SpinMutex<()>);

#[cfg(feature = "spin")]
#[expect(unsafe_code)]
// SAFETY: `spin` holds its mutex from `lock` to the drop of the guard, which outlives `f`, with
// acquire and release ordering.
unsafe impl RawLock for SpinLock {
    const INIT: Self = Self(spin::mutex::SpinMutex::new(()));

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self.0.lock();
        f()
    }
}

/// Masks interrupts (and takes whatever the `critical-section` implementation takes on several cores).
#[cfg(feature = "critical-section")]
#[derive(Debug)]
pub struct CriticalSectionLock(Held);

#[cfg(feature = "critical-section")]
#[expect(unsafe_code)]
// SAFETY: `Held` is touched only inside a critical section, which excludes all other contexts.
unsafe impl Sync for CriticalSectionLock {}

#[cfg(feature = "critical-section")]
#[expect(unsafe_code)]
// SAFETY: a critical section excludes every other context; critical sections nest, so `Held` keeps
// a closure from starting inside another one of the same lock.
unsafe impl RawLock for CriticalSectionLock {
    const INIT: Self = Self(Held::new());

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        critical_section::with(|_| self.0.with(f))
    }
}

/// The host's mutex: waiters sleep instead of spinning.
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct HostLock(std::sync::Mutex<()>);

#[cfg(feature = "std")]
#[expect(unsafe_code)]
// SAFETY: the guard of the standard mutex outlives `f`; a poisoned mutex still excludes.
unsafe impl RawLock for HostLock {
    const INIT: Self = Self(std::sync::Mutex::new(()));

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        f()
    }
}
