//! The mark of a parked value.

use super::atomic::{AtomicBool, Ordering};

/// The mark of the value that a lock protects, part of a lock that parks.
///
/// [`Mutex`](super::Mutex) accesses it under the lock only, so relaxed accesses suffice.
#[derive(Debug)]
pub struct Mark {
    is_set: AtomicBool,
    /// Set if a context was refused since the mark was set.
    missed: AtomicBool,
}

impl Mark {
    /// Creates a mark that is not set.
    #[expect(
        clippy::new_without_default,
        reason = "a constant, for constants of locks"
    )]
    pub const fn new() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            missed: AtomicBool::new(false),
        }
    }

    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Returns true if the mark is set, and then notes that a context was refused.
    pub(super) fn refuses(&self) -> bool {
        let is_set = self.is_set.load(Ordering::Relaxed);
        #[cfg(loom)]
        let is_set = super::loom_sync::read_mark(is_set);
        if is_set {
            self.missed.store(true, Ordering::Relaxed);
        }
        is_set
    }

    /// Removes the mark; returns true if a context was refused meanwhile.
    pub(super) fn remove(&self) -> bool {
        self.is_set.store(false, Ordering::Relaxed);
        let missed = self.missed.load(Ordering::Relaxed);
        self.missed.store(false, Ordering::Relaxed);
        missed
    }
}
