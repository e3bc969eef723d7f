//! Descriptors that programs poll, and polling.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{EINTR, POLLIN, nfds_t, pollfd};

use super::consumer::last_error;

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

/// Sleeps until a descriptor is ready or `until` has passed; returns the number of ready ones.
///
/// `None` waits for ever.
///
/// # Errors
/// The system's error number: EINTR if a signal arrived.
pub(crate) fn poll(descriptors: &mut [pollfd], until: Option<Instant>) -> Result<usize, i32> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, so that `until` has passed when the time is over. A time that is too long is
        // waited for in parts.
        let round = |left: Duration| left.as_micros().div_ceil(1000).min(1 << 30) as i32;
        let timeout = left.map_or(-1, round);
        let count = descriptors.len() as nfds_t;
        // SAFETY: the array has `count` entries, and the system writes nothing else.
        let ready = unsafe { libc::poll(descriptors.as_mut_ptr(), count, timeout) };
        match usize::try_from(ready) {
            Ok(0) if until.is_none_or(|until| Instant::now() < until) => {}
            Ok(ready) => return Ok(ready),
            Err(_) => return Err(last_error()),
        }
    }
}

/// Sleeps until a flag is raised; returns false if `until` passes first.
///
/// # Errors
/// EINTR: a signal arrived.
pub(crate) fn wait_for(descriptor: RawFd, until: Option<Instant>) -> Result<bool, i32> {
    let mut entry = [pollfd {
        fd: descriptor,
        events: POLLIN,
        revents: 0,
    }];
    match poll(&mut entry, until) {
        Ok(ready) => Ok(ready != 0),
        Err(EINTR) => Err(EINTR),
        // The only other error for one descriptor of this library is a lack of memory, which
        // passes.
        Err(_) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
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
            poll(&mut entry, Some(Instant::now())).map(|ready| (ready, entry[0].revents))
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
