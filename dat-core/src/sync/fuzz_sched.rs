//! Atomics and spin locks that call a hook before each access, with the feature `fuzz_sched`.
//!
//! By the hook a fuzzer decides which thread continues. Wakers, fences and the tags of adapters
//! call no hook: their operations happen at once. One thread runs at a time, so each thread sees
//! all earlier stores; the loom tests cover weaker orders.

use core::ops::Deref;
use std::sync::OnceLock;

/// The next operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads or writes a word that others may change.
    Word,
    /// Takes a spin lock.
    Lock,
    /// Tries again to take a held spin lock.
    ///
    /// The thread does nothing else until the holder runs.
    Again,
}

static TOLD: OnceLock<fn(Access)> = OnceLock::new();

/// Sets the hook before each access, called by the accessing thread; the first hook stays.
///
/// The hook may block for any time and must not call an adapter.
pub fn on_access(told: fn(Access)) {
    let _first = TOLD.set(told);
}

/// Calls the hook before an access.
#[inline]
pub(super) fn tell(access: Access) {
    if let Some(told) = TOLD.get() {
        told(access);
    }
}

/// An atomic of the target that calls the hook.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Watched<T>(T);

impl<T> Deref for Watched<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        tell(Access::Word);
        &self.0
    }
}

macro_rules! watched {
    ($($name:ident of $value:ty;)*) => {
        $(
            pub(crate) type $name = Watched<portable_atomic::$name>;

            impl $name {
                pub(crate) const fn new(initial: $value) -> Self {
                    Self(portable_atomic::$name::new(initial))
                }
            }
        )*
    };
}

watched! {
    AtomicBool of bool;
    AtomicU32 of u32;
    AtomicU64 of u64;
    AtomicUsize of usize;
}
