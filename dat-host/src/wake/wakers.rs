//! Wakers of the futures that wait for one state.
//!
//! Of `event-listener`, each future that waits would hold an allocation, and take a second lock
//! beside that of the state, which protects this list as well.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use dat_core::event::contain_panic;

use crate::lock::lock;

/// Maximum number of wakers for 32 futures or fewer.
const MOST: usize = 64;

/// A list of wakers, to be woken without locks.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds the clone of a waker, unless an equal one is in the list; `None` if it needs the clone.
    ///
    /// Wakers of dropped futures stay in the list. If it has two wakers for each of the `futures`,
    /// all of them are returned, and the list starts anew. The caller wakes them. Futures that
    /// still wait then add themselves again, which fills at most half of the list.
    fn add(&mut self, waker: &Waker, clone: &mut Option<Waker>, futures: usize) -> Option<Self> {
        if self.0.iter().any(|known| known.will_wake(waker)) {
            return Some(Self::default());
        }
        let clone = clone.take()?;
        let is_full = self.0.len() >= MOST.max(futures.saturating_mul(2));
        let displaced = if is_full {
            self.take()
        } else {
            Self::default()
        };
        self.0.push(clone);
        Some(displaced)
    }

    /// Takes all wakers out.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes all, also if one of them panics.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            contain_panic(|| waker.wake());
        }
    }
}

/// Returns the value of `ready`, or keeps the waker in the list of the state.
///
/// `futures` is the number of futures that may wait, or more. Cloning, waking and dropping a waker
/// run code of the executor, so they happen without the lock.
pub(crate) fn poll_state<S, T>(
    state: &Mutex<S>,
    context: &Context<'_>,
    futures: usize,
    wakers: impl Fn(&mut S) -> &mut Wakers,
    mut ready: impl FnMut(&mut S) -> Option<T>,
) -> Poll<T> {
    let mut clone = None;
    loop {
        let displaced = {
            let mut state = lock(state);
            if let Some(value) = ready(&mut state) {
                return Poll::Ready(value);
            }
            wakers(&mut state).add(context.waker(), &mut clone, futures)
        };
        match displaced {
            Some(displaced) => {
                displaced.wake();
                return Poll::Pending;
            }
            None => clone = Some(context.waker().clone()),
        }
    }
}
