//! The loan of memory to an operation in flight.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use dat_core::memory::LmrTriplet;

use super::registered::Registered;
use super::slot::Slot;
use crate::core::Core;

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
    fn core(&self) -> &Arc<Core>;

    /// Gives the memory to an operation.
    fn lend(self) -> Lent;

    /// Takes back what `lend` gave, after the operation has moved `length` bytes into it.
    fn take_back(lent: Lent) -> Self;

    /// Sets the number of valid bytes after a receive.
    fn set_received(&mut self, length: usize) {
        let _ = length;
    }
}

/// Memory of an operation in flight.
pub(crate) struct Lent {
    /// `None` after `take`.
    object: Option<Held>,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// The owner of memory in flight.
enum Held {
    Exclusive(Box<dyn Object>),
    Shared(Arc<dyn Any + Send + Sync>),
}

impl Lent {
    pub(crate) fn new(object: Box<dyn Object>, start: usize, length: usize) -> Self {
        Self {
            object: Some(Held::Exclusive(object)),
            start,
            length,
        }
    }

    /// Lends memory that others may read meanwhile, to an operation that only reads it.
    pub(super) fn shared(object: Arc<dyn Any + Send + Sync>, start: usize, length: usize) -> Self {
        Self {
            object: Some(Held::Shared(object)),
            start,
            length,
        }
    }

    /// Returns the object, whose type the caller knows.
    ///
    /// # Panics
    /// If it has another type. The operation that lent it has the type in its own.
    pub(crate) fn take<T: 'static>(mut self) -> Box<T> {
        if let Some(Held::Exclusive(object)) = self.object.take()
            && let Ok(object) = object.into_any().downcast()
        {
            return object;
        }
        unreachable!("an operation takes back what it lent")
    }

    /// As `take`, for shared memory.
    pub(super) fn take_shared<T: Send + Sync + 'static>(mut self) -> Arc<T> {
        if let Some(Held::Shared(object)) = self.object.take()
            && let Ok(object) = object.downcast()
        {
            return object;
        }
        unreachable!("an operation takes back what it lent")
    }

    /// Returns the slot of a shared receive queue.
    pub(crate) fn into_slot(self) -> Box<Slot> {
        self.take()
    }

    /// Lends a slot without a pool.
    pub(crate) fn of_slot(slot: Box<Slot>) -> Self {
        Self::new(slot, 0, 0)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(Held::Exclusive(object)) = self.object.take() {
            object.release();
        }
    }
}

/// An object that owns memory in flight.
pub(crate) trait Object: Send {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;

    /// Ends the ownership: frees the memory, or returns it to its pool.
    fn release(self: Box<Self>);
}

impl<B: Send + 'static> Object for Registered<B> {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {}
}

impl Object for Slot {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {
        self.go_home();
    }
}
