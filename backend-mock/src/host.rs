//! The part of the backend for hosts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::backend::{Activity, BackendError, HostBackend, HostDriver};
use dat_core::event::ThreadWait;
use dat_core::time::Instant;

use crate::backend::MockBackend;
use crate::fabric::Fabric;
use crate::wait::MockWait;

/// Microseconds within which a driver waits for the next action by polling.
const SPIN: u64 = 50;

impl HostBackend for MockBackend {
    type Driver = MockDriver;

    const DATA_CALLS_ARE_CANCELLED: bool = false;

    fn driver(&self) -> MockDriver {
        MockDriver(Arc::new(Member {
            fabric: self.fabric(),
            waker: OnceLock::new(),
        }))
    }
}

/// The part of an adapter in its fabric.
///
/// Without the fabric's own thread, each adapter performs the actions of the fabric that are due,
/// by the clock of its host, and wakes the others.
#[derive(Clone, Debug)]
pub struct MockDriver(Arc<Member>);

#[derive(Debug)]
struct Member {
    fabric: Fabric,
    waker: OnceLock<Waker>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.get() {
            self.fabric.shared.wakers.remove(waker);
        }
    }
}

impl HostDriver for MockDriver {
    type Wait = MockWait;

    fn wait(&self) -> Result<MockWait, BackendError> {
        let fabric = &self.0.fabric;
        match fabric.shared.is_threaded() {
            true => Ok(MockWait::new(fabric)),
            false => Err(BackendError::NotSupported),
        }
    }

    fn now(&self) -> Instant {
        let fabric = &self.0.fabric;
        match fabric.shared.is_threaded() {
            true => fabric.now(),
            false => ThreadWait::clock(),
        }
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        let shared = &self.0.fabric.shared;
        if shared.is_threaded() {
            return false;
        }
        if self.0.waker.set(waker.clone()).is_ok() {
            shared.wakers.add(waker);
        }
        true
    }

    fn act(&self, now: Instant) -> Activity {
        let fabric = &self.0.fabric;
        if fabric.shared.is_threaded() {
            return Activity::default();
        }
        let acted = fabric.run_until(now) != 0;
        if acted {
            fabric.shared.wakers.wake_others(self.0.waker.get());
        }
        let next = fabric.next_due();
        let is_near =
            next.is_some_and(|next| next.as_micros() <= now.as_micros().saturating_add(SPIN));
        Activity {
            acted: acted || is_near,
            next,
        }
    }

    fn acts_after_posts(&self) -> bool {
        !self.0.fabric.shared.is_threaded()
    }
}

/// Wakers of the adapters of a fabric. Each keeps its index while others are woken.
#[derive(Default)]
pub(crate) struct Wakers(Mutex<Vec<Option<Waker>>>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waker: Waker) {
        let mut wakers = self.lock();
        match wakers.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => wakers.push(Some(waker)),
        }
    }

    fn remove(&self, waker: &Waker) {
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
    fn wake_others(&self, own: Option<&Waker>) {
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
