//! The loan of memory to an operation.

use std::sync::Arc;

use dat_core::memory::LmrTriplet;
use dat_core::{Cause, Error as CoreError, Subtype};

use crate::flight::{AdapterState, Lent};

/// Memory that an operation takes over, and returns when it completes.
///
/// Implemented for [`Region`](crate::Region), [`RegionSlice`](crate::RegionSlice),
/// [`Buffer`](crate::Buffer), [`SharedRegion`](crate::SharedRegion),
/// [`ReadRegion`](crate::ReadRegion), and [`Gather`](crate::Gather), which has several of them.
///
/// Other crates cannot implement it, nor take memory apart with it:
///
/// ```compile_fail,E0624
/// fn lend<M: dat_host::Memory>(memory: M) {
///     let _ = memory.lend();
/// }
/// ```
#[expect(
    private_bounds,
    reason = "safe code that lends memory twice would break its exclusive ownership"
)]
pub trait Memory: Lend {}

/// Memory that an operation may write: all but [`SharedRegion`](crate::SharedRegion) and
/// [`ReadRegion`](crate::ReadRegion).
pub trait MemoryMut: Memory {}

/// Conversion of memory to a form that does not depend on its type, without an allocation.
pub(crate) trait Lend: Sized + Send + Unpin + 'static {
    /// Segments of one operation.
    type Segments: AsRef<[LmrTriplet]>;

    /// Returns the segments to post.
    fn segments(&self) -> Self::Segments;

    /// Returns the adapter of the memory.
    fn adapter(&self) -> &Arc<AdapterState>;

    /// Gives the memory to an operation.
    fn lend(self) -> Lent;

    /// Takes back what `lend` gave, after the operation has moved `length` bytes into it.
    fn take_back(lent: Lent) -> Self;

    /// Sets the number of valid bytes after a receive.
    fn set_received(&mut self, length: usize) {
        let _ = length;
    }
}

/// Returns the number of bytes of all segments.
pub(crate) fn total(segments: &[LmrTriplet]) -> u64 {
    segments.iter().map(|segment| segment.length).sum()
}

/// Checks that memory of the adapter `other` is of `core`.
///
/// # Errors
/// INVALID_HANDLE (LMR): it is of another one.
pub(crate) fn check_same_adapter(
    adapter: &Arc<AdapterState>,
    other: &Arc<AdapterState>,
) -> dat_core::Result<()> {
    match Arc::ptr_eq(adapter, other) {
        true => Ok(()),
        false => Err(CoreError::invalid_handle(Subtype::InvalidHandleLmr).because(Cause::Foreign)),
    }
}
