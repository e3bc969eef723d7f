//! Memory of an operation in flight, without its type.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Memory of an operation in flight.
pub(crate) struct Lent {
    /// `None` after `take`.
    object: Option<Held>,
    pub(crate) start: usize,
    pub(crate) length: usize,
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
    pub(crate) fn shared(object: Arc<dyn Any + Send + Sync>, start: usize, length: usize) -> Self {
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
    pub(crate) fn take_shared<T: Send + Sync + 'static>(mut self) -> Arc<T> {
        if let Some(Held::Shared(object)) = self.object.take()
            && let Ok(object) = object.downcast()
        {
            return object;
        }
        unreachable!("an operation takes back what it lent")
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
