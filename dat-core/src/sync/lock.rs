//! The raw locks the core can be built on.

use core::cell::Cell;
use core::marker::PhantomData;

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

    /// The lock of control calls, which hold it for as long as the device takes; most often the same.
    /// [`SplitLock`] chooses another one.
    type Control: RawLock;

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

    /// As `acquire`, or nothing at once if that would take long: somebody holds the lock.
    ///
    /// # Safety
    /// As for `acquire`, if there is a state.
    #[inline(always)]
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        // SAFETY: as the caller promises.
        Some(unsafe { self.acquire() })
    }

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

    type Control = Self;

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
// SAFETY: `spin` holds its mutex from `lock` to the drop of the guard or, if that is forgotten, to
// `force_unlock`, with acquire and release ordering.
unsafe impl RawLock for SpinLock {
    const INIT: Self = Self(spin::mutex::SpinMutex::new(()));

    type Control = Self;

    // Not the guard: a lock is where its holder knows it to be, so there is nothing to remember.
    type State<'a> = ();

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        #[cfg(all(feature = "scheduled", not(loom)))]
        super::scheduled::tell(super::Access::Lock);
        match self.0.try_lock() {
            Some(guard) => core::mem::forget(guard),
            None => self.contend(),
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        #[cfg(all(feature = "scheduled", not(loom)))]
        super::scheduled::tell(super::Access::Lock);
        self.0.try_lock().map(core::mem::forget)
    }

    #[inline(always)]
    unsafe fn release(&self, _state: Self::State<'_>) {
        // SAFETY: the caller acquired the lock, whose guard was forgotten, and releases it once.
        unsafe { self.0.force_unlock() }
    }
}

#[cfg(feature = "spin")]
impl SpinLock {
    #[cold]
    fn contend(&self) {
        // Whoever holds it has to be let go on.
        #[cfg(all(feature = "scheduled", not(loom)))]
        while self.0.is_locked() {
            super::scheduled::tell(super::Access::Again);
        }
        core::mem::forget(self.0.lock());
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

    type Control = Self;

    type State<'a> = critical_section::RestoreState;

    // Out of line: every call has several of these, and the processors that need them have little memory.
    #[inline(never)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: the caller keeps the state for `release`, in the same context, in nesting order.
        let state = unsafe { critical_section::acquire() };
        self.0.enter();
        state
    }

    #[inline(never)]
    unsafe fn release(&self, state: Self::State<'_>) {
        self.0.leave();
        // SAFETY: the state came from `acquire`, and all later sections are over, as the caller says.
        unsafe { critical_section::release(state) };
    }
}

/// One lock for the data path, `D`, and another one for control calls, `C`.
///
/// Where `D` masks interrupts or spins, a control call that waits for the device, such as a registration,
/// does so without: it holds `C`, and `D` only where it touches what posts and dequeues use. Queue pairs
/// and completion queues are made and changed under the locks of their endpoint and dispatcher even so.
///
/// Whoever may interrupt the holder of `C` and needs it too must be able to wait for it: between threads
/// that preempt each other a spin lock is no `C` on one processor. An interrupt handler that only notifies,
/// or posts, needs none; a dequeue needs it when a completion failed.
#[derive(Debug)]
pub struct SplitLock<D, C>(D, PhantomData<fn() -> C>);

#[expect(unsafe_code)]
// SAFETY: every call goes to `D`, under the same conditions.
unsafe impl<D: RawLock, C: RawLock> RawLock for SplitLock<D, C> {
    const INIT: Self = Self(D::INIT, PhantomData);

    type Control = C;

    type State<'a>
        = D::State<'a>
    where
        Self: 'a;

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: as the caller promises.
        unsafe { self.0.acquire() }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self) -> Option<D::State<'_>> {
        // SAFETY: as the caller promises.
        unsafe { self.0.try_acquire() }
    }

    #[inline(always)]
    unsafe fn release(&self, state: D::State<'_>) {
        // SAFETY: as the caller promises; the state came from `acquire` of `D`.
        unsafe { self.0.release(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::EpAttributes;
    use crate::flags::{CompletionFlags, EvdFlags, MemoryPrivileges};
    use crate::ia::Ia;
    use crate::memory::{LmrMemory, LmrRequest, Region};
    use crate::storage::IaStorage;
    use crate::testing::TestBackend;
    use crate::time::Instant;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// Counts how often it is taken, in the counter of its number.
    struct Counted<const NUMBER: usize>(NoLock);

    static TAKEN: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

    #[expect(unsafe_code)]
    // SAFETY: every call goes to the lock inside.
    unsafe impl<const NUMBER: usize> RawLock for Counted<NUMBER> {
        const INIT: Self = Self(NoLock::INIT);

        type Control = Self;

        type State<'a> = ();

        unsafe fn acquire(&self) -> Self::State<'_> {
            TAKEN[NUMBER].fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promises.
            unsafe { self.0.acquire() }
        }

        unsafe fn release(&self, state: Self::State<'_>) {
            // SAFETY: as the caller promises.
            unsafe { self.0.release(state) }
        }
    }

    /// How often the data lock and the control lock were taken since the last look.
    fn taken() -> (u32, u32) {
        let [data, control] = &TAKEN;
        (
            data.swap(0, Ordering::Relaxed),
            control.swap(0, Ordering::Relaxed),
        )
    }

    #[test]
    fn device_time_is_spent_under_the_control_lock_alone() {
        type Split = SplitLock<Counted<0>, Counted<1>>;
        let mut storage: IaStorage<TestBackend, Split, 1, 2, 1, 1, 8, 8> = IaStorage::new();
        let ia = Ia::open(TestBackend::default(), storage.lend(), 1).unwrap();
        let pz = ia.pz_create().unwrap();
        taken();
        let made = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::pretend(0x1000, 64)),
                pz,
                privileges: MemoryPrivileges::ALL,
            })
            .unwrap();
        ia.lmr_free(made.lmr).unwrap();
        ia.progress(Instant::ZERO);
        // Making and freeing wait for the posts of the one endpoint there may be, not for the device, under its lock.
        assert!(matches!(taken(), (2, control) if control >= 3));
        // The data path knows nothing of the control lock.
        let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
        let attributes = EpAttributes {
            max_request_dtos: 0,
            max_recv_dtos: 4,
            ..EpAttributes::DEFAULT
        };
        let ep = ia
            .ep_create(Some(pz), Some(evd), None, None, Some(&attributes))
            .unwrap();
        taken();
        ia.post_recv(ep, &[], 1, CompletionFlags::empty()).unwrap();
        assert!(ia.evd_dequeue(evd).is_err());
        assert_eq!(taken(), (2, 0));
    }
}
