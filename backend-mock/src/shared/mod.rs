//! The lock of a fabric.
//!
//! With `std` for threads, without it for one caller at a time.

#[cfg(not(feature = "std"))]
mod bare;
#[cfg(feature = "std")]
mod threads;
#[cfg(feature = "std")]
mod wakers;

#[cfg(not(feature = "std"))]
pub(crate) use bare::Shared;
#[cfg(feature = "std")]
pub(crate) use threads::Shared;
