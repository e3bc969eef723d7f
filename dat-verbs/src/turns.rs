//! Turns: what one thread does to an object from one call to another.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::locks::lock;

/// A value that belongs to the thread whose turn it is.
#[derive(Default)]
pub(crate) struct Turns<T> {
    state: Mutex<State<T>>,
    free: Condvar,
}

#[derive(Default)]
struct State<T> {
    is_taken: bool,
    own: T,
}

impl<T> Turns<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    /// Begins a turn, once no other thread has one.
    pub(crate) fn begin(&self) {
        let state = self.free.wait_while(self.state(), |state| state.is_taken);
        state.unwrap_or_else(PoisonError::into_inner).is_taken = true;
    }

    /// Acts on the value.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.state().own)
    }

    /// Acts on the value, and ends the turn of this thread; `None` if there is none.
    pub(crate) fn close<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = self.state();
        let acted = state.is_taken.then(|| act(&mut state.own));
        state.is_taken = false;
        drop(state);
        self.free.notify_one();
        acted
    }

    /// Ends the turn of this thread.
    pub(crate) fn end(&self) {
        self.state().is_taken = false;
        self.free.notify_one();
    }
}
