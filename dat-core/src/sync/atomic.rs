//! The atomics of the crate: those of the target, or, under `cfg(loom)`, ones whose every interleaving is explored.

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(all(not(loom), target_has_atomic = "64"))]
pub(crate) use portable_atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use portable_atomic::{AtomicBool, AtomicU32, AtomicUsize, fence};

pub(crate) use portable_atomic::Ordering;

#[cfg(all(loom, not(halves)))]
pub(crate) use super::explored::AtomicU64;
#[cfg(loom)]
pub(crate) use super::explored::{AtomicBool, AtomicU32, AtomicUsize, AtomicWaker, fence};
