//! The atomics of the crate: those of the target, or replacements for tests.
//!
//! Under `cfg(loom)`, loom's atomics, which explore all interleavings. With the feature
//! `fuzz_sched`, atomics that call a fuzzer's scheduler before each access.

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(all(not(any(loom, feature = "fuzz_sched")), target_has_atomic = "64"))]
pub(crate) use portable_atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use portable_atomic::fence;
#[cfg(not(any(loom, feature = "fuzz_sched")))]
pub(crate) use portable_atomic::{AtomicBool, AtomicU32, AtomicUsize};

pub(crate) use portable_atomic::Ordering;

#[cfg(all(feature = "fuzz_sched", not(loom)))]
pub(crate) use super::fuzz_sched::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(all(loom, not(split64)))]
pub(crate) use super::loom_sync::AtomicU64;
#[cfg(loom)]
pub(crate) use super::loom_sync::{AtomicBool, AtomicU32, AtomicUsize, AtomicWaker, fence};
