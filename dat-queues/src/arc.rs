//! Counted references.

#[cfg(feature = "std")]
pub use alloc::sync::Arc;
#[cfg(not(feature = "std"))]
pub use portable_atomic_util::Arc;
