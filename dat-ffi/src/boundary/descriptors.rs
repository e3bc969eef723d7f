//! Descriptors that programs poll.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// A descriptor that polls as readable, and as having normal data, while it is raised.
#[derive(Debug)]
pub(crate) struct Flag {
    near: UnixStream,
    far: UnixStream,
    raised: bool,
}

impl Flag {
    /// Makes a flag that is not raised.
    pub(crate) fn new() -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        // The program has the descriptor too, and may have read from it.
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self {
            near,
            far,
            raised: false,
        })
    }

    /// Returns the descriptor that programs poll.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    /// Raises or lowers the flag.
    pub(crate) fn set(&mut self, raised: bool) {
        if raised == self.raised {
            return;
        }
        // The call cannot block, and the socket has room for one byte.
        let _done = if raised {
            self.far.write(&[0])
        } else {
            self.near.read(&mut [0])
        };
        self.raised = raised;
    }
}

/// Writes to standard error until a write fails.
///
/// Takes no lock, because a child of `fork` may find it held for ever.
pub(crate) fn say(text: &str) {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        // SAFETY: `left` has `left.len()` bytes.
        let written = unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => left = left.get(written..).unwrap_or_default(),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use libc::pollfd;

    use super::super::signals::Blocked;
    use super::*;

    /// Spec: RSMPF-01, RSMPF-04
    #[test]
    fn a_flag_can_be_polled_for_normal_data() {
        let mut flag = Flag::new().expect("a flag");
        let ready = |flag: &Flag| {
            let mut entry = [pollfd {
                fd: flag.descriptor(),
                events: libc::POLLRDNORM,
                revents: 0,
            }];
            let polled = Blocked::new().poll(&mut entry, Some(Instant::now()));
            polled.map(|ready| (ready, entry[0].revents))
        };
        assert_eq!(ready(&flag), Ok((0, 0)));
        for _ in 0..3 {
            flag.set(true);
            flag.set(true);
            assert_eq!(ready(&flag), Ok((1, libc::POLLRDNORM)));
            flag.set(false);
            assert_eq!(ready(&flag), Ok((0, 0)));
        }
    }
}
