//! Which of the threads that block drives `progress`, and is woken when the device has something to say.

use core::task::Waker;

use super::Ia;
use crate::backend::Backend;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker, Ordering};

/// The one blocking wait that the device wakes, and how many others rely on it.
///
/// Whoever blocks waits with its own object's waker as well. The driver takes in what the device says, which
/// wakes those it concerns. When it leaves it wakes all that wait on an object, and one of them is the next.
#[derive(Debug)]
pub(crate) struct Driver {
    taken: AtomicBool,
    /// Blocking waits that are not the driver.
    followers: AtomicU32,
    pub(super) waker: AtomicWaker,
}

impl Driver {
    pub(super) const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            followers: AtomicU32::new(0),
            waker: AtomicWaker::new(),
        }
    }
}

/// The part of one blocking wait; given up when it is dropped.
pub(crate) struct Part<'a, 's, B: Backend, L: RawLock> {
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
    /// A blocking wait begins.
    pub(crate) fn take_part(&self) -> Part<'_, 's, B, L> {
        Part {
            ia: self,
            role: Role::None,
        }
    }

    /// There is more to do than whoever drives `progress` knows: an earlier deadline, or work at once.
    #[inline(never)]
    pub(crate) fn wake_progress(&self) {
        self.progress_waker.wake();
        self.driver.waker.wake();
    }

    /// Wakes everybody who waits on a dispatcher or a notification object; no lock may be held.
    #[cold]
    fn wake_waiters(&self) {
        for slot in self.shared.event_dispatchers.made() {
            let waker = slot.queue.with(|queue| queue.change_waker(None));
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        for slot in self.shared.notification_objects.made() {
            let mut wakers = slot.main.with(|object| object.take_wakers());
            while let Some((_, waker)) = wakers.pop_front() {
                waker.wake();
            }
        }
    }
}

impl<B: Backend, L: RawLock> Part<'_, '_, B, L> {
    /// Whether this wait drives `progress` from here on; the device wakes it then.
    ///
    /// One that does not is woken when the driver leaves, provided that its waker was with its object
    /// before this was asked.
    pub(crate) fn drives(&mut self, waker: &Waker) -> bool {
        let driver = &self.ia.driver;
        if self.role == Role::None {
            // Counted before the look at `taken`: a driver that leaves sees the one or is seen gone.
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

impl<B: Backend, L: RawLock> Drop for Part<'_, '_, B, L> {
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
