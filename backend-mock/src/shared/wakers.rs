//! Adapters to wake after actions of a fabric without its own thread.

use alloc::vec::Vec;
use core::task::Waker;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Wakers of the adapters of a fabric. Each keeps its index while others are woken.
#[derive(Default)]
pub(crate) struct Wakers(Mutex<Vec<Option<Waker>>>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, waker: Waker) {
        let mut wakers = self.lock();
        match wakers.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => wakers.push(Some(waker)),
        }
    }

    pub(crate) fn remove(&self, waker: &Waker) {
        let is_it = |slot: &Option<Waker>| slot.as_ref().is_some_and(|one| one.will_wake(waker));
        let removed = {
            let mut wakers = self.lock();
            let slot = wakers.iter_mut().find(|slot| is_it(slot));
            slot.and_then(Option::take)
        };
        // Its drop may run code of the program, so the list is not locked meanwhile.
        drop(removed);
    }

    /// Wakes all adapters but the one whose waker is `own`.
    pub(crate) fn wake_others(&self, own: Option<&Waker>) {
        let mut index = 0;
        loop {
            // Wakers run code of the program, so the list is not locked meanwhile.
            let Some(waker) = self.lock().get(index).cloned() else {
                return;
            };
            index += 1;
            if let Some(waker) = waker
                && !own.is_some_and(|own| own.will_wake(&waker))
            {
                waker.wake();
            }
        }
    }
}
