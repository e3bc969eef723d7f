//! Atomics for loom tests, created on first use because the crate's atomics live in constants.
//!
//! A mutant weakens or omits one access of the core, or skips one lock or waker, to show that a
//! test in `models` then fails. Loom has a total order of fences only. Here a fence orders a
//! sequentially consistent write and a sequentially consistent read that follows it without another
//! write in between: less than the language promises.

use core::panic::Location;
use core::task::Waker;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::string::String;
use std::sync::OnceLock;

use portable_atomic::Ordering;

/// Change to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Makes the access relaxed.
    Relaxed,
    /// Takes the access out of the total order.
    Partial,
    /// Omits a write; the access returns as if it were done.
    Omitted,
    /// Skips a lock or a wake-up, which is no access of the core's own.
    Skipped,
}

impl Change {
    pub(crate) const ALL: [Self; 4] = [Self::Relaxed, Self::Partial, Self::Omitted, Self::Skipped];

    /// Returns the name that processes exchange.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Partial => "partial",
            Self::Omitted => "omitted",
            Self::Skipped => "skipped",
        }
    }
}

/// A change to one location in the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mutant {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) change: Change,
}

std::thread_local! {
    static CHANGED: RefCell<Option<Mutant>> = const { RefCell::new(None) };
    static SEEN: RefCell<BTreeSet<Mutant>> = const { RefCell::new(BTreeSet::new()) };
    static ACCESSES: Cell<u64> = const { Cell::new(0) };
    static UNDER_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Sets the change of the accesses from here on.
pub(crate) fn change(mutant: Option<Mutant>) {
    CHANGED.set(mutant);
}

/// Starts or ends the test proper; accesses before it are not changed.
pub(crate) fn set_under_way(under_way: bool) {
    UNDER_WAY.set(under_way);
}

/// Returns all changes that were possible so far.
pub(crate) fn seen() -> BTreeSet<Mutant> {
    SEEN.with_borrow(Clone::clone)
}

/// Returns the number of accesses so far.
pub(crate) fn accesses() -> u64 {
    ACCESSES.get()
}

/// Execution of an access.
enum Way {
    With(Ordering),
    NotAtAll(Ordering),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    /// A store or an exchange.
    Write,
    Fence,
}

fn way(location: &Location<'_>, order: Ordering, access: Access) -> Way {
    let (writes, is_fence) = (access != Access::Load, access == Access::Fence);
    ACCESSES.set(ACCESSES.get().wrapping_add(1));
    let mut possible = std::vec::Vec::new();
    if order != Ordering::Relaxed && !is_fence {
        possible.push(Change::Relaxed);
    }
    if order == Ordering::SeqCst && !is_fence {
        possible.push(Change::Partial);
    }
    if writes && order != Ordering::Relaxed {
        possible.push(Change::Omitted);
    }
    match changed(location, &possible) {
        None => Way::With(order),
        Some(Change::Relaxed) => Way::With(Ordering::Relaxed),
        Some(Change::Partial) => Way::With(Ordering::AcqRel),
        Some(Change::Omitted | Change::Skipped) => Way::NotAtAll(order),
    }
}

/// Returns false for a step that the mutant skips: a lock or a wake-up.
fn is_done(location: &Location<'_>) -> bool {
    changed(location, &[Change::Skipped]).is_none()
}

/// Returns a mark that was read; false if the mutant skips the read.
#[track_caller]
pub(crate) fn read_mark(is_set: bool) -> bool {
    is_done(Location::caller()) && is_set
}

/// Returns the mutant's change at this location, if it is one of `possible`.
fn changed(location: &Location<'_>, possible: &[Change]) -> Option<Change> {
    if !UNDER_WAY.get() {
        return None;
    }
    let mutant = |change| Mutant {
        file: location.file().into(),
        line: location.line(),
        column: location.column(),
        change,
    };
    SEEN.with_borrow_mut(|seen| seen.extend(possible.iter().map(|&change| mutant(change))));
    CHANGED.with_borrow(|changed| {
        let changed = changed.as_ref()?;
        (possible.contains(&changed.change) && mutant(changed.change) == *changed)
            .then_some(changed.change)
    })
}

/// Returns the part of an ordering that a load has.
fn of_load(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed | Ordering::Release => Ordering::Relaxed,
        _ => Ordering::Acquire,
    }
}

/// Returns the part of an ordering that a store has.
fn of_store(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed | Ordering::Acquire => Ordering::Relaxed,
        _ => Ordering::Release,
    }
}

loom::thread_local! {
    /// Set if the thread's last write was sequentially consistent and no such read followed.
    static WRITTEN: Cell<bool> = Cell::new(false);
}

/// Starts a read; a fence puts it after earlier writes in the total order.
fn reads_in_total(order: Ordering) {
    if order == Ordering::SeqCst && WRITTEN.with(|written| written.replace(false)) {
        loom::sync::atomic::fence(order);
    }
}

/// Starts a write.
///
/// Earlier writes of the total order must not order a write outside of it.
fn writes(order: Ordering) {
    if order != Ordering::SeqCst {
        WRITTEN.with(|written| written.set(false));
    }
}

fn wrote_in_total(order: Ordering) {
    if order == Ordering::SeqCst {
        WRITTEN.with(|written| written.set(true));
    }
}

fn of_both(order: Ordering) -> Ordering {
    match order {
        Ordering::SeqCst => Ordering::AcqRel,
        order => order,
    }
}

#[track_caller]
pub(crate) fn fence(order: Ordering) {
    match way(Location::caller(), order, Access::Fence) {
        Way::NotAtAll(_) => {}
        Way::With(order) => loom::sync::atomic::fence(order),
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic that loom explores.
        pub(crate) struct $name {
            initial: $value,
            inner: OnceLock<loom::sync::atomic::$name>,
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl $name {
            pub(crate) const fn new(initial: $value) -> Self {
                Self {
                    initial,
                    inner: OnceLock::new(),
                }
            }

            fn inner(&self) -> &loom::sync::atomic::$name {
                self.inner
                    .get_or_init(|| loom::sync::atomic::$name::new(self.initial))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                let (Way::With(order) | Way::NotAtAll(order)) =
                    way(Location::caller(), order, Access::Load);
                reads_in_total(order);
                self.inner().load(of_load(order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                if let Way::With(order) = way(Location::caller(), order, Access::Write) {
                    writes(order);
                    self.inner().store(value, of_store(order));
                    wrote_in_total(order);
                }
            }
        }
    };
}

macro_rules! modify {
    ($name:ident, $value:ty, $($call:ident),*) => {
        impl $name {
            $(
                #[track_caller]
                pub(crate) fn $call(&self, value: $value, order: Ordering) -> $value {
                    match way(Location::caller(), order, Access::Write) {
                        Way::With(order) => {
                            reads_in_total(order);
                            writes(order);
                            let before = self.inner().$call(value, of_both(order));
                            wrote_in_total(order);
                            before
                        }
                        Way::NotAtAll(order) => self.inner().load(of_load(order)),
                    }
                }
            )*

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                match way(Location::caller(), order, Access::Write) {
                    Way::With(order) => {
                        reads_in_total(order);
                        writes(order);
                        let failed = of_load(failed);
                        let outcome = self.inner().compare_exchange(from, to, of_both(order), failed);
                        if outcome.is_ok() {
                            wrote_in_total(order);
                        }
                        outcome
                    }
                    Way::NotAtAll(order) => match self.inner().load(of_load(order)) {
                        now if now == from => Ok(now),
                        now => Err(now),
                    },
                }
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32);
#[cfg(not(split64))]
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
modify!(AtomicBool, bool, swap);
modify!(
    AtomicU32, u32, swap, fetch_add, fetch_sub, fetch_or, fetch_and
);

impl AtomicU32 {
    #[track_caller]
    pub(crate) fn compare_exchange_weak(
        &self,
        from: u32,
        to: u32,
        order: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(from, to, order, failed)
    }

    #[track_caller]
    pub(crate) fn fetch_update(
        &self,
        order: Ordering,
        failed: Ordering,
        mut change: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        let mut now = self.load(failed);
        while let Some(to) = change(now) {
            match self.compare_exchange(now, to, order, failed) {
                Ok(from) => return Ok(from),
                Err(newer) => now = newer,
            }
        }
        Err(now)
    }
}

/// A value that is created on first use.
pub(crate) struct Late<T>(OnceLock<T>);

impl<T> core::fmt::Debug for Late<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Late")
    }
}

impl<T: Default> Late<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&self) -> &T {
        self.0.get_or_init(T::default)
    }
}

/// Detects simultaneous accesses to a value.
#[derive(Debug)]
pub(crate) struct Accesses(Late<loom::cell::UnsafeCell<()>>);

impl Accesses {
    pub(crate) const fn new() -> Self {
        Self(Late::new())
    }

    pub(crate) fn read(&self) {
        self.0.get().with(|_| ());
    }

    pub(crate) fn write(&self) {
        self.0.get().with_mut(|_| ());
    }
}

/// A waker that one thread sets and many use.
pub(crate) struct AtomicWaker(Late<loom::sync::Mutex<Option<Waker>>>);

impl core::fmt::Debug for AtomicWaker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AtomicWaker")
    }
}

impl AtomicWaker {
    pub(crate) const fn new() -> Self {
        Self(Late::new())
    }

    #[track_caller]
    pub(crate) fn register(&self, waker: &Waker) {
        if is_done(Location::caller()) {
            *self.held() = Some(waker.clone());
        }
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        self.held().take()
    }

    #[track_caller]
    pub(crate) fn wake(&self) {
        if is_done(Location::caller())
            && let Some(waker) = self.take()
        {
            waker.wake();
        }
    }

    fn held(&self) -> loom::sync::MutexGuard<'_, Option<Waker>> {
        match self.0.get().lock() {
            Ok(held) => held,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// The mutex in which `HostLock` sleeps.
#[cfg(feature = "std")]
#[derive(Debug)]
pub(crate) struct Mutex<T>(Late<loom::sync::Mutex<T>>);

#[cfg(feature = "std")]
impl Mutex<()> {
    pub(crate) const fn new(_: ()) -> Self {
        Self(Late::new())
    }

    pub(crate) fn lock(&self) -> std::sync::LockResult<loom::sync::MutexGuard<'_, ()>> {
        self.0.get().lock()
    }
}

/// The condition variable that wakes a sleeper of `HostLock`.
#[cfg(feature = "std")]
#[derive(Debug)]
pub(crate) struct Condvar(Late<loom::sync::Condvar>);

#[cfg(feature = "std")]
impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(Late::new())
    }

    pub(crate) fn wait<'a>(
        &self,
        held: loom::sync::MutexGuard<'a, ()>,
    ) -> std::sync::LockResult<loom::sync::MutexGuard<'a, ()>> {
        self.0.get().wait(held)
    }

    pub(crate) fn notify_one(&self) {
        self.0.get().notify_one();
    }
}

/// The lock of loom tests.
///
/// It is loom's own, since the tests are about the code that it protects.
#[derive(Debug)]
pub(crate) struct ModelLock(Late<loom::sync::Mutex<()>>);

#[expect(unsafe_code)]
// SAFETY: loom's mutex is held from `acquire` until the state, which is its guard, is dropped. A
// run that skips a lock has to fail. One thread of the process runs at a time, and `Guard` reports
// each access to a protected value to loom before it makes it.
unsafe impl super::RawLock for ModelLock {
    const INIT: Self = Self(Late::new());

    type Control = Self;

    type State<'a> = Option<loom::sync::MutexGuard<'a, ()>>;

    #[track_caller]
    unsafe fn acquire(&self) -> Self::State<'_> {
        is_done(Location::caller()).then(|| match self.0.get().lock() {
            Ok(held) => held,
            Err(poisoned) => poisoned.into_inner(),
        })
    }

    unsafe fn release(&self, state: Self::State<'_>) {
        drop(state);
    }
}
