//! Atomics and spin locks that tell of each access before it is made, so that a fuzzer decides which thread goes on: with the
//! feature `scheduled`.
//!
//! Wakers, fences and the tags of adapters are not told of: what a thread does with these is done at once. One thread goes on at a time, so that each sees what
//! the others stored; weaker orders are for the models.

use core::ops::Deref;
use std::sync::OnceLock;

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It looks at a word that others may change, or changes it.
    Word,
    /// It takes a spin lock.
    Lock,
    /// It tries again to take one that somebody holds: until that one goes on it does nothing else.
    Again,
}

static TOLD: OnceLock<fn(Access)> = OnceLock::new();

/// Has a function called before every access, by the thread that makes it; the first such function stays.
///
/// It may hold the thread up for as long as it likes, and must not call an adapter.
pub fn on_access(told: fn(Access)) {
    let _first = TOLD.set(told);
}

/// An access is about to be made.
#[inline]
pub(super) fn tell(access: Access) {
    if let Some(told) = TOLD.get() {
        told(access);
    }
}

/// An atomic of the processor, told of.
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
