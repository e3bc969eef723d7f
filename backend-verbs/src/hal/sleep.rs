//! File descriptors to sleep on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use dat_core::backend::BackendError;

use super::refusal;

/// Makes reads of a file descriptor return when there is nothing.
pub(super) fn set_nonblocking(fd: RawFd) -> Result<(), BackendError> {
    // SAFETY: plain flags of a descriptor that the caller has.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(refusal::last());
        }
    }
    Ok(())
}

/// A counter that readers can sleep on.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    pub(crate) fn new() -> Result<Self, BackendError> {
        // SAFETY: makes a descriptor out of nothing.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(refusal::last());
        }
        // SAFETY: it was just made, and is nobody else's.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes who sleeps on it, or who will.
    pub(crate) fn raise(&self) {
        // It fails only when the counter is as high as it goes, and then it is raised.
        let _raised = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Lowers it.
    pub(crate) fn lower(&self) {
        let mut count = [0; 8];
        // It fails only when it is not raised.
        let _lowered = (&self.0).read(&mut count);
    }
}

/// Several descriptors that one thread sleeps on; each change is told once.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, BackendError> {
        // SAFETY: makes a descriptor out of nothing.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(refusal::last());
        }
        // SAFETY: it was just made, and is nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches a descriptor, under a number.
    pub(crate) fn add(&self, fd: RawFd, number: u32) -> Result<(), BackendError> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: u64::from(number),
        };
        // SAFETY: both descriptors are open, and the event outlives the call.
        let answer =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        refusal::check_last(answer)
    }

    /// Sleeps until something happened; a set of bits, one for each number below 32 that it was on.
    pub(crate) fn wait(&self) -> u32 {
        const ROOM: usize = 8;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; ROOM];
        // SAFETY: there is room for that many events.
        let count =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), ROOM as i32, -1) };
        events
            .iter()
            .take(usize::try_from(count).unwrap_or(0))
            .map(|event| 1_u32.checked_shl(event.u64 as u32).unwrap_or(0))
            .fold(0, |all, bit| all | bit)
    }
}

/// Sleeps until one of up to three descriptors has something to read, or the time is over; a bit for each that has.
///
/// # Errors
/// A signal came.
pub(crate) fn sleep_on(fds: [RawFd; 3], longest: Option<Duration>) -> io::Result<u32> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = longest.map(|longest| libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    });
    let limit = limit
        .as_ref()
        .map_or(core::ptr::null(), |limit| &raw const *limit);
    // SAFETY: three descriptors, and a time that lives until the call returns; no signal mask.
    let count = unsafe { libc::ppoll(polled.as_mut_ptr(), 3, limit, core::ptr::null()) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(polled
        .iter()
        .zip([1, 2, 4])
        .filter(|(polled, _)| polled.revents != 0)
        .fold(0, |all, (_, bit)| all | bit))
}
