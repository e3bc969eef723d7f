//! The Unix socket of a pair: it makes the pair, and is its doorbell afterwards.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::forks;

/// Calls that read the socket, and bytes that each takes. A hostile peer rings without being asked.
const DRAINS: usize = 8;
const DRAINED: usize = 64;

/// A Unix socket, which children of `fork` give up (ROCE-222).
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Takes a connected stream socket, or one that is to be connected; it does not block.
    pub fn new(socket: OwnedFd) -> Self {
        forks::add(socket.as_raw_fd());
        Self(socket)
    }

    /// Rings; false if the peer is gone. A full socket has doorbells for the peer to find.
    #[cold]
    pub(super) fn ring(&self) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(&self.0, &[0], flags);
        !matches!(sent, Err(Errno::PIPE | Errno::CONNRESET))
    }

    /// Returns true if the peer is gone. Takes no doorbell.
    pub(super) fn has_hung_up(&self) -> bool {
        let mut watched = [PollFd::new(&self.0, PollFlags::empty())];
        let found = poll(&mut watched, Some(&Timespec::default()));
        let [bell] = watched;
        found.is_ok() && bell.revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Ends the connection, even if others hold the socket.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Takes the doorbells; false if the peer is gone.
    pub(super) fn drain(&self) -> bool {
        let mut bytes = [0; DRAINED];
        for _ in 0..DRAINS {
            match recv(&self.0, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return false,
                // The end of the peer may lie behind doorbells.
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        // A hostile peer has left more, and the system reports its end no second time.
        !self.has_hung_up()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        forks::remove(self.0.as_raw_fd());
    }
}
