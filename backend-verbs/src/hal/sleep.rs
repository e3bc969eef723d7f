//! File descriptors that threads sleep on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use dat_core::backend::BackendError;
use dat_core::event::{OwnSleep, WakeReason};

use super::cancel::uncancelled;
use super::refusal;

/// Makes reads of a file descriptor return if there is nothing to read.
pub(super) fn set_nonblocking(fd: RawFd) -> Result<(), BackendError> {
    // SAFETY: reads and sets flags of a descriptor that the caller owns.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(refusal::last());
        }
    }
    Ok(())
}

/// Duplicates a descriptor.
pub(crate) fn doubled(fd: RawFd) -> Result<OwnedFd, BackendError> {
    // SAFETY: the caller owns the descriptor; the new one has no other owner.
    let double = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if double < 0 {
        return Err(refusal::last());
    }
    // SAFETY: just made, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(double) })
}

/// An eventfd: a counter that readers can sleep on.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    pub(crate) fn new() -> Result<Self, BackendError> {
        Self::open().map_err(|error| refusal::meaning(&error))
    }

    /// As `new`, with the kernel's own error.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, without another owner.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes the current sleepers, or the next one.
    pub(crate) fn raise(&self) {
        // Fails only if the counter is at its maximum, and then it is raised.
        let _raised = uncancelled(|| (&self.0).write(&1_u64.to_ne_bytes()));
    }

    /// Lowers the counter; returns true if it was raised.
    pub(crate) fn lower(&self) -> bool {
        let mut count = [0; 8];
        // Fails only if the counter is not raised.
        uncancelled(|| (&self.0).read(&mut count).is_ok())
    }
}

/// Sleepers to wake by an event on a descriptor that several sets watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// All that sleep on it.
    All,
    /// The set with a sleeper that was added first, among those that chose this.
    One,
}

impl Wakes {
    /// Returns the events for the kernel; edge-triggered, so that each change is reported once.
    const fn events(self) -> u32 {
        let all = (libc::EPOLLIN | libc::EPOLLET) as u32;
        match self {
            Self::All => all,
            Self::One => all | libc::EPOLLEXCLUSIVE as u32,
        }
    }
}

/// A set of descriptors that one thread sleeps on; each change is reported once.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, BackendError> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(refusal::last());
        }
        // SAFETY: just made, without another owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor to the set, under a number.
    pub(crate) fn add(&self, fd: RawFd, number: u64, wakes: Wakes) -> Result<(), BackendError> {
        self.control(libc::EPOLL_CTL_ADD, fd, number, wakes)
    }

    /// Removes a descriptor from the set.
    pub(crate) fn remove(&self, fd: RawFd) -> Result<(), BackendError> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Wakes::All)
    }

    fn control(&self, what: i32, fd: RawFd, number: u64, wakes: Wakes) -> Result<(), BackendError> {
        let mut event = libc::epoll_event {
            events: wakes.events(),
            u64: number,
        };
        // SAFETY: both descriptors are open, and the event outlives the call.
        let answer = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &raw mut event) };
        refusal::check_last(answer)
    }

    /// Sleeps until an event, at most `longest`; may return up to a millisecond early.
    ///
    /// Returns a bit set of the numbers below 32 with events.
    ///
    /// # Errors
    /// A signal interrupted the sleep.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> io::Result<u32> {
        let mut happened = 0;
        self.wait_each(longest, |number| {
            happened |= 1_u32.checked_shl(number as u32).unwrap_or(0);
        })?;
        Ok(happened)
    }

    /// As `wait`, for any numbers: calls `each` with those that have events, at most 8.
    ///
    /// # Errors
    /// A signal interrupted the sleep.
    pub(crate) fn wait_each(
        &self,
        longest: Option<Duration>,
        mut each: impl FnMut(u64),
    ) -> io::Result<()> {
        if let Some(own) = OwnSleep::get() {
            let mut each = |_flags, number| each(number);
            return match (own.epoll)(self.0.as_raw_fd(), longest, &mut each) {
                WakeReason::Woken | WakeReason::TimedOut => Ok(()),
                WakeReason::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            };
        }
        let Some(longest) = longest else {
            return self.take(-1, each);
        };
        let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
        if milliseconds != 0 || longest.is_zero() {
            return self.take(milliseconds, each);
        }
        // Less than a millisecond, the resolution of `epoll_wait`.
        let mut polled = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: one descriptor, and a time that outlives the call; no signal mask.
        let count = unsafe { libc::ppoll(&raw mut polled, 1, &raw const limit, core::ptr::null()) };
        match count {
            0 => Ok(()),
            1.. => self.take(0, each),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn take(&self, milliseconds: i32, mut each: impl FnMut(u64)) -> io::Result<()> {
        const ROOM: usize = 8;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; ROOM];
        // SAFETY: the buffer has room for `ROOM` events.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                ROOM as i32,
                milliseconds,
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for event in events.iter().take(count) {
            each(event.u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
