//! Options of opening a device.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

/// Function that starts a detached thread with this name.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Repetitions of a message that finds no receive, in the code of roce and verbs: without limit.
///
/// The interface has no attribute for it (EPS-04), and a program that posts receives in time would
/// lose a connection to a busy processor. Peers that never post one cost a server a connection,
/// whose number and age it limits itself.
#[cfg(any(feature = "roce", feature = "verbs"))]
pub(crate) const NOT_READY_RETRIES: u8 = 7;

/// Options of opening a device; the defaults suit programs in Rust.
///
/// A sender waits for a receive of its peer without limit, on each device.
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
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }
}
