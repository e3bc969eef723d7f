//! The atomics of the crate: those of the target, or replacements for tests.
//!
//! Under `cfg(loom)`, loom's atomics, which explore all interleavings. With the feature
//! `scheduled`, atomics that call a fuzzer's scheduler before each access.

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(all(not(any(loom, feature = "scheduled")), target_has_atomic = "64"))]
pub(crate) use portable_atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use portable_atomic::fence;
#[cfg(not(any(loom, feature = "scheduled")))]
pub(crate) use portable_atomic::{AtomicBool, AtomicU32, AtomicUsize};

pub(crate) use portable_atomic::Ordering;

#[cfg(all(loom, not(halves)))]
pub(crate) use super::explored::AtomicU64;
#[cfg(loom)]
pub(crate) use super::explored::{AtomicBool, AtomicU32, AtomicUsize, AtomicWaker, fence};
#[cfg(all(feature = "scheduled", not(loom)))]
pub(crate) use super::scheduled::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
