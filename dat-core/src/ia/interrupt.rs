//! Calls for interrupt handlers.

use core::task::Waker;

use crate::adapter::Ia;
use crate::backend::Backend;
use crate::event::contain_panic;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU32, AtomicWaker, Ordering};

/// The part of an adapter that is safe in an interrupt handler: counts and wakes.
///
/// It takes no lock and touches no table. It wakes the blocking wait that drives `progress`, if
/// there is one. Other drivers register a waker with [`Ia::register_progress_waker`] or poll
/// [`Ia::take_interrupts`].
#[derive(Clone, Copy, Debug)]
pub struct InterruptHandle<'a> {
    interrupts: &'a AtomicU32,
    wakers: [&'a AtomicWaker; 2],
}

impl InterruptHandle<'_> {
    /// Counts an interrupt and wakes the driver of `progress`.
    pub fn notify(&self) {
        self.interrupts.fetch_add(1, Ordering::Release);
        for waker in self.wakers {
            contain_panic(|| waker.wake());
        }
    }
}

/// # Interrupts
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Returns the handle for an interrupt handler.
    pub fn interrupt_handle(&self) -> InterruptHandle<'_> {
        InterruptHandle {
            interrupts: &self.interrupts,
            wakers: [&self.progress_waker, &self.driver.waker],
        }
    }

    /// Returns the interrupts since the last call.
    ///
    /// At 0 a driver may sleep until the next one.
    pub fn take_interrupts(&self) -> u32 {
        self.interrupts.swap(0, Ordering::Acquire)
    }

    /// Sets the waker of a consumer that drives `progress`.
    ///
    /// Check `take_interrupts` once more before sleeping. Only one waker is kept. Blocking waits
    /// have their own and need no other driver.
    pub fn register_progress_waker(&self, waker: &Waker) {
        self.progress_waker.register(waker);
    }
}
