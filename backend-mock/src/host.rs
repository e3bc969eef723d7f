//! The part of the backend for hosts.

use alloc::sync::Arc;
use core::task::Waker;
use std::sync::OnceLock;

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
