//! Sleeps of a thread whose signals are blocked while it is awake.

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::RawFd;
use std::time::Duration;

use super::wait::WakeReason;

/// Called with the flags and data of each event of an epoll descriptor.
pub type OnEvent<'f> = &'f mut dyn FnMut(u32, u64);

/// How the calling thread sleeps in the kernel, in place of the usual way.
///
/// A thread that is to notice each signal of the system blocks its signals while it is awake. It
/// must let them through in the same system call that sleeps, or one could come in between. So it
/// sleeps on descriptors, by a function of its own.
#[derive(Clone, Copy)]
pub struct OwnSleep {
    /// Sleeps until a descriptor is readable; a signal interrupts it, also one that came before.
    pub poll: fn(RawFd, Option<Duration>) -> WakeReason,
    /// As `poll`, on an epoll descriptor, whose events it takes; rounds the pause up to
    /// milliseconds.
    ///
    /// A `poll` there would wake further threads: to the system it is none that takes the events.
    pub epoll: fn(RawFd, Option<Duration>, OnEvent<'_>) -> WakeReason,
    /// The descriptor that others wake the thread by; `poll` makes it unreadable again.
    pub wake_fd: RawFd,
    /// Makes the descriptor of a thread readable.
    pub wake: fn(RawFd),
}

impl fmt::Debug for OwnSleep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OwnSleep")
            .field("wake_fd", &self.wake_fd)
            .finish_non_exhaustive()
    }
}

/// Set once a thread has a sleep of its own.
///
/// In a library that is loaded late, the first use of a thread-local value needs memory, and ends
/// the process if there is none. A process without such threads never gets there.
static IS_USED: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    static OWN: Cell<Option<OwnSleep>> = const { Cell::new(None) };
}

impl OwnSleep {
    /// Sets how the calling thread sleeps; `None` is the usual way. Returns the former one.
    pub fn set(own: Option<Self>) -> Option<Self> {
        if own.is_some() {
            IS_USED.store(true, Ordering::Relaxed);
        }
        match IS_USED.load(Ordering::Relaxed) {
            true => OWN.replace(own),
            false => None,
        }
    }

    /// Returns how the calling thread sleeps; `None` is the usual way.
    #[must_use]
    pub fn get() -> Option<Self> {
        match IS_USED.load(Ordering::Relaxed) {
            true => OWN.get(),
            false => None,
        }
    }
}
