//! The raw locks the core can be built on.

use core::cell::Cell;

/// Mutual exclusion.
///
/// Locks are never held across a call out of the core, are taken in the order
/// interface adapter < endpoint < receive queue < event dispatcher < notification object < remote
/// region, are released in the opposite order, and are never taken twice by one context; an
/// implementation may dead-lock if they are.
///
/// # Safety
/// From the return of `acquire` to the call of `release` no other `acquire` of the same lock may
/// return, on any thread or interrupt level, and what the holder wrote must be visible to the next one.
#[expect(unsafe_code)]
// UNSAFETY: the `Mutex` hands out `&mut` on the strength of this promise.
pub unsafe trait RawLock {
    /// An unlocked lock.
    const INIT: Self;

    /// What `release` needs to know.
    type State<'a>
    where
        Self: 'a;

    /// Waits until nobody holds the lock, and holds it.
    ///
    /// # Safety
    /// The caller passes the state to `release`, once, in the same context, after all locks it
    /// acquired later were released.
    unsafe fn acquire(&self) -> Self::State<'_>;

    /// Gives the lock back.
    ///
    /// # Safety
    /// `state` came from `acquire` of this lock, under the conditions stated there.
    unsafe fn release(&self, state: Self::State<'_>);
}

/// Marks a lock as held; entering twice never returns, as a dead-lock does.
#[derive(Debug)]
struct Held(Cell<bool>);

impl Held {
    const fn new() -> Self {
        Self(Cell::new(false))
    }

    #[inline(always)]
    fn enter(&self) {
        while self.0.replace(true) {
            core::hint::spin_loop();
        }
    }

    #[inline(always)]
    fn leave(&self) {
        self.0.set(false);
    }
}

/// No lock: for an interface adapter that stays on one thread. It makes the adapter `!Sync`.
#[derive(Debug)]
pub struct NoLock(Held);

#[expect(unsafe_code)]
// SAFETY: the `Cell` makes the type `!Sync`, so all holders are on one thread; `Held` never lets a
// second one in before the first has left.
unsafe impl RawLock for NoLock {
    const INIT: Self = Self(Held::new());

    type State<'a> = ();

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        self.0.enter();
    }

    #[inline(always)]
    unsafe fn release(&self, _state: Self::State<'_>) {
        self.0.leave();
    }
}

/// A spin lock, for threads that do not preempt each other for long. Never share it with an interrupt handler.
#[cfg(feature = "spin")]
#[derive(Debug)]
pub struct SpinLock(spin::mutex::SpinMutex<()>);

#[cfg(feature = "spin")]
#[expect(unsafe_code)]
// SAFETY: `spin` holds its mutex from `lock` to the drop of the guard, with acquire and release
// ordering.
unsafe impl RawLock for SpinLock {
    const INIT: Self = Self(spin::mutex::SpinMutex::new(()));

    type State<'a> = spin::mutex::SpinMutexGuard<'a, ()>;

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        self.0.lock()
    }

    #[inline(always)]
    unsafe fn release(&self, state: Self::State<'_>) {
        drop(state);
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
// the context itself from acquiring the same lock again.
unsafe impl RawLock for CriticalSectionLock {
    const INIT: Self = Self(Held::new());

    type State<'a> = critical_section::RestoreState;

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: the caller keeps the state for `release`, in the same context, in nesting order.
        let state = unsafe { critical_section::acquire() };
        self.0.enter();
        state
    }

    #[inline(always)]
    unsafe fn release(&self, state: Self::State<'_>) {
        self.0.leave();
        // SAFETY: the state came from `acquire`, and all later sections are over, as the caller says.
        unsafe { critical_section::release(state) };
    }
}

/// The host's mutex: waiters sleep instead of spinning.
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct HostLock(std::sync::Mutex<()>);

#[cfg(feature = "std")]
#[expect(unsafe_code)]
// SAFETY: the standard mutex is held until its guard is dropped; a poisoned mutex still excludes.
unsafe impl RawLock for HostLock {
    const INIT: Self = Self(std::sync::Mutex::new(()));

    type State<'a> = std::sync::MutexGuard<'a, ()>;

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[inline(always)]
    unsafe fn release(&self, state: Self::State<'_>) {
        drop(state);
    }
}
