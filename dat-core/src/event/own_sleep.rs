//! Sleeps of a thread whose signals are blocked while it is awake.

use core::cell::Cell;
use core::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use super::wait::WakeReason;

/// How the calling thread sleeps in the kernel, in place of the usual way.
///
/// A thread that is to notice each signal of the system blocks its signals while it is awake. It
/// must let them through in the same system call that sleeps, or one could come in between. So it
/// sleeps on descriptors, by a function of its own.
#[derive(Clone, Copy)]
pub struct OwnSleep {
    /// Sleeps until a descriptor is readable; a signal interrupts it, also one that came before.
    pub poll: fn(RawFd, Option<Duration>) -> WakeReason,
    /// The descriptor that others wake the thread by; `poll` makes it unreadable again.
    pub bell: RawFd,
    /// Makes the bell of a thread readable.
    pub ring: fn(RawFd),
}

impl fmt::Debug for OwnSleep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OwnSleep")
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

std::thread_local! {
    static OWN: Cell<Option<OwnSleep>> = const { Cell::new(None) };
}

impl OwnSleep {
    /// Sets how the calling thread sleeps; `None` is the usual way. Returns the former one.
    pub fn set(own: Option<Self>) -> Option<Self> {
        OWN.replace(own)
    }

    /// Returns how the calling thread sleeps; `None` is the usual way.
    #[must_use]
    pub fn get() -> Option<Self> {
        OWN.get()
    }
}
