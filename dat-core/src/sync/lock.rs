//! Raw locks for the core.

use core::cell::Cell;
use core::marker::PhantomData;

use super::Mark;
use super::atomic::{AtomicBool, Ordering};

/// Mutual exclusion.
///
/// The core calls the backend's control functions under the adapter's lock, and a queue's functions
/// under the lock of its owner. It takes locks in the order interface adapter < endpoint < receive
/// queue < event dispatcher < notification object < remote region, and releases them in the
/// opposite order. It never takes a lock twice in one context; an implementation may deadlock then.
///
/// # Safety
/// From the return of `acquire`, or of `try_acquire` with a state, to the call of `release`: no
/// other `acquire` of the same lock may return, and no other `try_acquire` may return a state, on
/// any thread or interrupt level. The writes of a holder must be visible to the next holder.
/// `mark` of a lock returns the same in every call: `None`, or a mark that no other lock has.
#[expect(unsafe_code)]
// UNSAFETY: `Mutex` relies on this promise to hand out `&mut`.
pub unsafe trait RawLock {
    /// An unlocked lock.
    const INIT: Self;

    /// The lock of control calls, which hold it for as long as the device takes.
    ///
    /// Most implementations use the same type; [`SplitLock`] uses another one.
    type Control: RawLock;

    /// State that `release` needs.
    type State<'a>
    where
        Self: 'a;

    /// Set if a control call marks an object while the device changes it, in place of holding the
    /// object's lock.
    ///
    /// For locks that mask interrupts. Data calls that meet the mark are refused. Set it if `mark`
    /// returns a mark.
    const PARKS: bool = false;

    /// Returns the mark of the value that the lock protects, if the lock parks.
    fn mark(&self) -> Option<&Mark> {
        None
    }

    /// Waits until the lock is free, and acquires it.
    ///
    /// # Safety
    /// The caller passes the state to `release`, once, in the same context, after it has released
    /// all locks that it acquired later.
    unsafe fn acquire(&self) -> Self::State<'_>;

    /// Acquires the lock, or returns `None` if the current context would wait for a context that it
    /// interrupts.
    ///
    /// The core uses it for [`Control`](Self::Control), and refuses the call on `None`. The mutex
    /// of an operating system returns `None` in every interrupt handler. By default it waits.
    ///
    /// # Safety
    /// As for `acquire`, if it returns a state.
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        // SAFETY: promised by the caller.
        Some(unsafe { self.acquire() })
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// `state` came from `acquire` or `try_acquire` of this lock, under the conditions stated
    /// there.
    unsafe fn release(&self, state: Self::State<'_>);
}

/// Marks a lock as held; entering twice never returns, like a deadlock.
#[derive(Debug)]
struct Held(Cell<bool>);

impl Held {
    const fn new() -> Self {
        Self(Cell::new(false))
    }

    #[inline]
    fn enter(&self) {
        while self.0.replace(true) {
            core::hint::spin_loop();
        }
    }

    #[inline]
    fn leave(&self) {
        self.0.set(false);
    }
}

/// No lock, for an interface adapter that stays on one thread; makes the adapter `!Sync`.
#[derive(Debug)]
pub struct NoLock(Held);

#[expect(unsafe_code)]
// SAFETY: the `Cell` makes the type `!Sync`, so all holders are on one thread; `Held` never lets a
// second one in before the first has left.
unsafe impl RawLock for NoLock {
    const INIT: Self = Self(Held::new());

    type Control = Self;

    type State<'a> = ();

    #[inline]
    unsafe fn acquire(&self) -> Self::State<'_> {
        self.0.enter();
    }

    #[inline]
    unsafe fn release(&self, _state: Self::State<'_>) {
        self.0.leave();
    }
}

/// A spin lock, for threads that do not preempt each other for long.
///
/// Never share it with an interrupt handler.
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

    // Not the guard: the lock is reached by its address, so there is no state to keep.
    type State<'a> = ();

    #[inline]
    unsafe fn acquire(&self) -> Self::State<'_> {
        #[cfg(all(feature = "fuzz_sched", not(loom)))]
        super::fuzz_sched::tell(super::Access::Lock);
        match self.0.try_lock() {
            Some(guard) => core::mem::forget(guard),
            None => self.contend(),
        }
    }

    #[inline]
    unsafe fn release(&self, _state: Self::State<'_>) {
        // SAFETY: the caller acquired the lock, whose guard was forgotten, and releases it once.
        unsafe { self.0.force_unlock() }
    }
}

#[cfg(feature = "spin")]
impl SpinLock {
    #[cold]
    fn contend(&self) {
        // The scheduler must let the holder continue.
        #[cfg(all(feature = "fuzz_sched", not(loom)))]
        while self.0.is_locked() {
            super::fuzz_sched::tell(super::Access::Again);
        }
        core::mem::forget(self.0.lock());
    }
}

/// Masks interrupts, by the `critical-section` implementation.
///
/// On several cores it also takes the lock of that implementation.
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

    // Not inlined: each call of the core contains several, and the processors that need this lock
    // have little memory.
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
        // SAFETY: the state came from `acquire`, and the caller has ended all later sections.
        unsafe { critical_section::release(state) };
    }
}

/// A lock for control calls that masks no interrupts; use it in [`SplitLock`].
///
/// It admits one context. A call of another one is refused: INSUFFICIENT_RESOURCES with the cause
/// [`Busy`](crate::error::Cause::Busy). So an interrupt handler never waits for the context that it
/// interrupts. Under an operating system, implement [`RawLock`] for its mutex instead.
#[derive(Debug)]
pub struct ContextLock(AtomicBool);

#[expect(unsafe_code)]
// SAFETY: only the context that changed the word from false to true leaves either function as the
// holder, until `release`. Acquire and release ordering make its writes visible to the next one.
unsafe impl RawLock for ContextLock {
    const INIT: Self = Self(AtomicBool::new(false));

    type Control = Self;

    type State<'a> = ();

    // For calls that cannot be refused, such as the drop of the adapter, and for the rest of a
    // `progress` that had the lock before: it interrupts no context that holds it.
    unsafe fn acquire(&self) -> Self::State<'_> {
        while self.0.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
    }

    #[inline(never)]
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then_some(())
    }

    #[inline(never)]
    unsafe fn release(&self, _state: Self::State<'_>) {
        self.0.store(false, Ordering::Release);
    }
}

/// One lock for the data path, `D`, and another for control calls, `C`.
///
/// Use it if `D` masks interrupts. A control call then holds only `C` while it waits for the
/// device. It takes `D` for short sections, whose lengths depend neither on the device nor on the
/// lengths of queues.
///
/// An endpoint, shared receive queue or dispatcher whose queues the device creates or changes is
/// marked meanwhile. Calls that meet the mark are refused (GEN-16), and told when to look again:
/// after the change the adapter counts an interrupt
/// ([`Ia::take_interrupts`](crate::Ia::take_interrupts)).
///
/// `C` is [`ContextLock`], or the mutex of an operating system. Where threads preempt each other on
/// one processor, it cannot be a spin lock.
#[derive(Debug)]
pub struct SplitLock<D, C>(D, Mark, PhantomData<fn() -> C>);

#[expect(unsafe_code)]
// SAFETY: every call goes to `D`, under the same conditions; the mark is the lock's own.
unsafe impl<D: RawLock, C: RawLock> RawLock for SplitLock<D, C> {
    const INIT: Self = Self(D::INIT, Mark::new(), PhantomData);

    type Control = C;

    type State<'a>
        = D::State<'a>
    where
        Self: 'a;

    const PARKS: bool = true;

    fn mark(&self) -> Option<&Mark> {
        Some(&self.1)
    }

    #[inline]
    unsafe fn acquire(&self) -> Self::State<'_> {
        // SAFETY: promised by the caller.
        unsafe { self.0.acquire() }
    }

    #[inline]
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        // SAFETY: promised by the caller.
        unsafe { self.0.try_acquire() }
    }

    #[inline]
    unsafe fn release(&self, state: D::State<'_>) {
        // SAFETY: promised by the caller; the state came from the same function of `D`.
        unsafe { self.0.release(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Ia;
    use crate::attributes::EpAttributes;
    use crate::flags::{CompletionFlags, EvdFlags, MemoryPrivileges};
    use crate::memory::{LmrMemory, LmrRequest, Region};
    use crate::testing::TestBackend;
    use crate::time::Instant;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// Counts its acquisitions in `TAKEN[NUMBER]`.
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
            // SAFETY: promised by the caller.
            unsafe { self.0.acquire() }
        }

        unsafe fn release(&self, state: Self::State<'_>) {
            // SAFETY: promised by the caller.
            unsafe { self.0.release(state) }
        }
    }

    /// Returns the acquisitions of the data lock and the control lock since the last call.
    fn taken() -> (u32, u32) {
        let [data, control] = &TAKEN;
        (
            data.swap(0, Ordering::Relaxed),
            control.swap(0, Ordering::Relaxed),
        )
    }

    type Split = SplitLock<Counted<0>, Counted<1>>;

    crate::define_storage! {
        struct SplitSlots for TestBackend, Split {
            protection_zones: 1,
            local_regions: 1,
            remote_regions: 1,
            event_dispatchers: 2,
            notification_objects: 2,
            endpoints: 1,
            shared_receive_queues: 1,
            public_service_points: 1,
            reserved_service_points: 1,
            connection_requests: 1,
            events: 8,
            records: 8,
        }
    }

    #[test]
    fn device_time_is_spent_under_the_control_lock_alone() {
        let mut storage = SplitSlots::new();
        let ia = Ia::open(TestBackend::default(), storage.lend(), 1).unwrap();
        let pz = ia.pz_create().unwrap();
        taken();
        let made = ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
                pz,
                privileges: MemoryPrivileges::ALL,
            })
            .unwrap();
        ia.lmr_free(made.lmr).unwrap();
        ia.progress(Instant::ZERO);
        // Registration and deregistration wait for posts in progress. No endpoint has posted, but
        // without std each call asks every slot.
        let asked = if cfg!(feature = "std") { 0 } else { 2 };
        assert!(matches!(taken(), (data, control) if data == asked && control >= 3));
        // The data path does not take the control lock.
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
