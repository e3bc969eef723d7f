//! Shared state of a fabric.
//!
//! With `std` for threads, without it for one caller at a time.

#[cfg(not(feature = "std"))]
mod bare;
#[cfg(feature = "std")]
mod threads;

#[cfg(feature = "std")]
pub use threads::FabricThread;
#[cfg(feature = "std")]
pub(crate) use {alloc::sync::Arc, threads::Shared};
#[cfg(not(feature = "std"))]
pub(crate) use {bare::Shared, portable_atomic_util::Arc};
