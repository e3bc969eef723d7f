//! Options of opening a device.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

/// Function that starts a detached thread with this name.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Options of opening a device; the defaults suit programs in Rust.
///
/// A sender waits for a receive of its peer without limit, on each device, unless
/// [`limits_not_ready`](Self::limits_not_ready) is set.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The network of `mock://` addresses; without, that of the process.
    #[cfg(feature = "mock")]
    pub network: Option<crate::Network>,
    /// Set if the devices of `mock://` addresses are numbers, 1 to 254, of the numbered fabric.
    ///
    /// The fabric has a thread, and stays as long as the process. Words may follow the number:
    /// `extended` for the extended operations, `non-coherent` for a host whose device looks past
    /// the caches.
    pub numbered: bool,
    /// Starts the threads of backends; without, they are threads of the standard library.
    pub start_thread: Option<StartThread>,
    /// Silence after which the peer of an idle connection is probed, if the address has no time of
    /// its own and the backend probes.
    pub keep_alive: Option<Duration>,
    /// Set if a connection qualifier above the highest port stands for its low 16 bits, on devices
    /// whose qualifiers are ports.
    ///
    /// Otherwise it is refused.
    pub shortened_qualifiers: bool,
    /// Set if a message that finds no receive of the peer is repeated six times only, on roce and
    /// verbs. Its connection then breaks.
    ///
    /// The interface has no attribute for it (EPS-04). For programs that cannot give a wait up; a
    /// receive that comes a little late may lose their connection.
    pub limits_not_ready: bool,
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the repetitions of a message that finds no receive, in the code of roce and verbs.
    #[cfg(any(feature = "roce", feature = "verbs"))]
    pub(crate) const fn not_ready_retries(&self) -> u8 {
        match self.limits_not_ready {
            true => 6,
            // Without limit.
            false => 7,
        }
    }
}
