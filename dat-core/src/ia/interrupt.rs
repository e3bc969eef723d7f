//! What an interrupt handler may do.

use core::task::Waker;

use super::Ia;
use crate::backend::Backend;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU32, AtomicWaker, Ordering};

/// The part of an adapter that is safe in an interrupt handler: set a bit, wake a waker.
///
/// It takes no lock and touches no table. It wakes the blocking wait that drives `progress`, if there is
/// one; another driver registers a waker with [`Ia::register_progress_waker`], or looks at
/// [`Ia::take_interrupts`].
#[derive(Clone, Copy, Debug)]
pub struct InterruptHandle<'a> {
    interrupts: &'a AtomicU32,
    wakers: [&'a AtomicWaker; 2],
}

impl InterruptHandle<'_> {
    /// Notes that the device wants attention and wakes whoever drives `progress`.
    pub fn notify(&self) {
        self.interrupts.fetch_add(1, Ordering::Release);
        for waker in self.wakers {
            waker.wake();
        }
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// The part of the adapter to hand to an interrupt handler.
    pub fn interrupt_handle(&self) -> InterruptHandle<'_> {
        InterruptHandle {
            interrupts: &self.interrupts,
            wakers: [&self.progress_waker, &self.driver.waker],
        }
    }

    /// Interrupts since the last call; 0 means that sleeping is safe until the next one.
    pub fn take_interrupts(&self) -> u32 {
        self.interrupts.swap(0, Ordering::Acquire)
    }

    /// Sets the waker of a consumer who drives `progress`; look at `take_interrupts` once more before sleeping.
    ///
    /// There is one. Blocking waits have their own, and need nobody else to drive.
    pub fn register_progress_waker(&self, waker: &Waker) {
        self.progress_waker.register(waker);
    }
}
