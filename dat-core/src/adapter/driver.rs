//! Selection of the blocking thread that drives `progress` and that the device wakes.

use core::task::Waker;

use super::Ia;
use crate::backend::Backend;
use crate::contain::contain_panic;
use crate::storage::VisitList;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker, Ordering};

/// The blocking wait that the device wakes, and the number of other waits.
///
/// Each wait also stores its waker with its own object. The driver handles the events of the
/// device, which wakes the waits they concern. When the driver leaves, it wakes all waits, and one
/// of them becomes the next driver.
#[derive(Debug)]
pub(crate) struct Driver {
    taken: AtomicBool,
    /// Number of blocking waits other than the driver.
    followers: AtomicU32,
    pub(crate) waker: AtomicWaker,
}

impl Driver {
    pub(crate) const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            followers: AtomicU32::new(0),
            waker: AtomicWaker::new(),
        }
    }
}

/// The role of a blocking wait; dropping it gives the role up.
pub(crate) struct WaitRole<'a, 's, B: Backend, L: RawLock> {
    ia: &'a Ia<'s, B, L>,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    None,
    Follower,
    Driver,
}

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Starts a blocking wait, without a role yet.
    pub(crate) fn join_drivers(&self) -> WaitRole<'_, 's, B, L> {
        WaitRole {
            ia: self,
            role: Role::None,
        }
    }

    /// Wakes the driver of `progress` for an earlier deadline or for immediate work.
    pub(crate) fn wake_progress(&self) {
        contain_panic(|| self.progress_waker.wake());
        self.driver.waker.wake();
    }

    /// Wakes all waiters of dispatchers and notification objects; no lock may be held.
    ///
    /// The cost is that of the objects that got a waker since the last call.
    #[cold]
    fn wake_waiters(&self) {
        let shared = &self.shared;
        let mut next = shared.waited_dispatchers.take();
        while let Some(index) = next
            && let Some(slot) = shared.event_dispatchers.get(index.into())
        {
            let mut queue = slot.queue.lock_unparked();
            next = VisitList::next(index, &slot.waits);
            if queue.is_none() {
                // It was parked, and had no waiter. One that came since may have found the link.
                queue = slot.queue.lock_unparked();
            }
            let waker = queue.as_mut().and_then(|queue| queue.change_waker(None));
            drop(queue);
            if let Some(waker) = waker {
                contain_panic(|| waker.wake());
            }
        }
        let mut next = shared.waited_objects.take();
        while let Some(index) = next
            && let Some(slot) = shared.notification_objects.get(index.into())
        {
            let mut wakers = slot.main.with(|object| {
                next = VisitList::next(index, &slot.waits);
                object.take_wakers()
            });
            while let Some((_, waker)) = wakers.pop_front() {
                contain_panic(|| waker.wake());
            }
        }
    }
}

impl<B: Backend, L: RawLock> WaitRole<'_, '_, B, L> {
    /// Makes this wait the driver if there is none; returns true if it drives.
    ///
    /// The device then wakes `waker`. A wait that does not drive is woken when the driver leaves,
    /// if it stored its waker with its object before this call.
    pub(crate) fn try_drive(&mut self, waker: &Waker) -> bool {
        let driver = &self.ia.driver;
        if self.role == Role::None {
            // Counted before the test of `taken`: a driver that leaves sees this wait, or this wait
            // sees that it left.
            driver.followers.fetch_add(1, Ordering::SeqCst);
            self.role = Role::Follower;
        }
        if self.role == Role::Follower
            && driver
                .taken
                .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            driver.followers.fetch_sub(1, Ordering::SeqCst);
            self.role = Role::Driver;
        }
        if self.role == Role::Driver {
            driver.waker.register(waker);
        }
        self.role == Role::Driver
    }
}

impl<B: Backend, L: RawLock> Drop for WaitRole<'_, '_, B, L> {
    fn drop(&mut self) {
        let driver = &self.ia.driver;
        match self.role {
            Role::None => {}
            Role::Follower => {
                driver.followers.fetch_sub(1, Ordering::SeqCst);
            }
            Role::Driver => {
                drop(driver.waker.take());
                driver.taken.store(false, Ordering::SeqCst);
                if driver.followers.load(Ordering::SeqCst) != 0 {
                    self.ia.wake_waiters();
                }
            }
        }
    }
}
