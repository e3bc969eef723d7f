//! Locks of the library.

use std::sync::{Mutex, MutexGuard, PoisonError};

use backend_roce::{generation, process_generation};

/// Children of children that have a place of their own.
const GENERATIONS: usize = 16;

/// A value of this process with its lock; a child of `fork` begins with a new one.
///
/// A thread of the parent may have held the lock of the former value, and does not release it in
/// the child.
pub(crate) struct OfProcess<T>([Mutex<(usize, Option<T>)>; GENERATIONS]);

impl<T: Default> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Mutex::new((0, None)) }; GENERATIONS])
    }

    /// Acts on the value.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let generation = process_generation();
        let mut own = lock(&self.0[generation % GENERATIONS]);
        let (of, value) = &mut *own;
        if *of != generation {
            *of = generation;
            // What belongs to the parent is not to be ended here.
            core::mem::forget(value.take());
        }
        act(value.get_or_insert_default())
    }

    /// Looks at the value, if there is one and no thread has the lock; needs no memory.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        // Whoever made a value has forks counted.
        let generation = generation();
        let own = self.0[generation % GENERATIONS].try_lock().ok()?;
        let (of, value) = &*own;
        value.as_ref().filter(|_| *of == generation).map(look)
    }
}

/// Locks a mutex, also after a panic: no change of a value is left half done by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
