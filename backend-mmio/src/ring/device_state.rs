//! State that all queues of a device share: the first fault and the halt.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;

use crate::fault::{DeviceFault, FaultCell};

/// State that all queues of a device share.
#[derive(Debug)]
pub struct DeviceState {
    fault: FaultCell,
    /// Set once the device was halted after a fault.
    halted: AtomicBool,
    /// Woken at the first fault.
    waker: Option<Waker>,
}

impl DeviceState {
    /// Creates the state of a device without fault.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: None,
        }
    }

    /// As [`new`](Self::new), with a waker that the first fault wakes.
    ///
    /// The thread that finds the fault wakes it. A thread must then call `Ia::progress`, which ends
    /// waits of other threads. The waker stands for a device interrupt. Like an interrupt it may
    /// run while locks of the adapter are held: it must not call into the adapter.
    #[must_use]
    pub const fn waking(waker: Waker) -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: Some(waker),
        }
    }

    /// Lends the state to one driver and returns a view for the caller.
    ///
    /// The state stays borrowed while either is in use, so it cannot be lent to another driver:
    ///
    /// ```compile_fail,E0499
    /// use backend_mmio::ring::DeviceState;
    ///
    /// let mut state = DeviceState::new();
    /// let (first, _) = state.lend();
    /// let (second, _) = state.lend();
    /// drop((first, second));
    /// ```
    #[must_use]
    pub const fn lend(&mut self) -> (LentState<'_>, &Self) {
        let state: &Self = self;
        (LentState(state), state)
    }

    pub(super) fn set_fault(&self, fault: DeviceFault) {
        if self.fault.set(fault)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Resets the state to that of `new`.
    pub(crate) fn clear(&self) {
        self.fault.clear();
        self.halted.store(false, Ordering::Release);
    }

    /// Returns the first fault of the device, if any.
    pub fn fault(&self) -> Option<DeviceFault> {
        self.fault.get()
    }

    /// Returns true after a fault: the driver then writes no register.
    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        self.fault.is_set()
    }

    /// Returns true if the device is halted, so that posted requests may be flushed.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Records that the device is halted.
    pub(crate) fn set_halted(&self) {
        self.halted.store(true, Ordering::Release);
    }
}

/// State of a device, lent exclusively to its driver by [`DeviceState::lend`].
#[derive(Debug)]
pub struct LentState<'s>(pub(crate) &'s DeviceState);

impl Default for DeviceState {
    fn default() -> Self {
        Self::new()
    }
}
