//! Wakers of the futures that wait for one state.

use std::task::Waker;

/// Maximum number of wakers.
const MOST: usize = 64;

/// A list of wakers, to be woken without locks.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds a waker, unless an equal one is in the list.
    ///
    /// Returns one to wake if there are too many: those of futures that were dropped stay in the
    /// list, and a future that is woken early adds itself again.
    #[must_use]
    pub(crate) fn add(&mut self, waker: &Waker) -> Option<Waker> {
        if self.0.iter().any(|known| known.will_wake(waker)) {
            return None;
        }
        let oldest = (self.0.len() == MOST).then(|| self.0.remove(0));
        self.0.push(waker.clone());
        oldest
    }

    /// Takes all wakers out.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes all.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}
