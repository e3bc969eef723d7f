//! Options of an adapter.

#[cfg(feature = "udp")]
use alloc::boxed::Box;
use core::time::Duration;

use crate::proto::PathMtu;
use crate::proto::connection::ConnectionOptions;

/// Way of an adapter's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// Queues in memory to adapters of the same user on this host, and packets to others.
    #[default]
    Any,
    /// Packets over UDP.
    Packets,
    /// Queues in memory; connections to others fail.
    Local,
}

/// Options of an adapter.
#[derive(Clone, Debug)]
pub struct RoceOptions {
    /// Name of the adapter.
    pub name: &'static str,
    /// Random bytes, other ones for each adapter (ROCE-175).
    pub secret: [u8; 16],
    /// Most connections, with those that ended a moment ago: 64 to 32,768, rounded up to a power of
    /// two. A sixteenth stays unused.
    pub connections: usize,
    /// Most regions and bound windows; rounded up to a power of two.
    pub keys: usize,
    /// Connection requests that wait for the consumer's answer (ROCE-174).
    pub backlog: usize,
    /// Packets that a queue pair has under way (ROCE-66).
    pub window: u32,
    /// Code of the time without progress after which a request is repeated (ROCE-81).
    ///
    /// 16 is 268 ms.
    pub timeout: u8,
    /// Repetitions without progress, at most 7 (ROCE-82).
    pub retries: u8,
    /// Code of the time after which a connection management message is repeated (ROCE-160).
    ///
    /// 16 is 268 ms. After 15 repetitions, 4.3 s in all, the peer counts as unreachable.
    pub response_timeout: u8,
    /// Repetitions of a message that found no receive: 0 to 6, or 7 for ever (ROCE-79).
    pub not_ready_retries: u8,
    /// Wait of a peer whose message found no receive here, as a code (ROCE-22).
    ///
    /// 20 is 10.24 ms.
    pub not_ready_timer: u8,
    /// Silence of a peer after which an idle connection is probed; `None` for never (ROCE-53).
    ///
    /// At least 100 ms.
    ///
    /// A peer that does not answer the probe breaks the connection, as it would break a request.
    pub keep_alive: Option<Duration>,
    /// Largest path MTU.
    pub mtu: PathMtu,
    /// Way of the adapter's connections.
    pub path: PathChoice,
    /// Longest time after which the thread of the adapter looks at queues in memory that the
    /// program has polled (ROCE-235).
    ///
    /// A packet lies there no longer if the program has stopped without waiting for anything.
    pub look_again: Duration,
    /// Receive buffer that each socket asks the system for, in bytes; the system may grant less.
    pub receive_buffer: usize,
    /// Set for sockets without a thread: polls of completion queues take and send packets, and
    /// timers run in `progress`, whose argument is the time.
    ///
    /// Only while the program polls does the adapter answer its peers.
    pub polled: bool,
    /// Function that starts the thread of the adapter.
    ///
    /// The default starts a thread of the standard library, which ends the process if the heap is
    /// exhausted.
    #[cfg(feature = "udp")]
    pub start_thread: StartThread,
}

/// Function that starts a detached thread with this name.
#[cfg(feature = "udp")]
pub type StartThread =
    fn(name: &'static core::ffi::CStr, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;

/// Starts a thread of the standard library.
#[cfg(feature = "udp")]
fn start_thread(
    name: &'static core::ffi::CStr,
    body: Box<dyn FnOnce() + Send>,
) -> std::io::Result<()> {
    let name = name.to_string_lossy().into_owned();
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(body).map(drop)
}

impl RoceOptions {
    /// Returns the usual options, with random bytes of the system.
    ///
    /// # Errors
    /// The system has no random bytes.
    #[cfg(feature = "udp")]
    pub fn random() -> std::io::Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(std::io::Error::from)?;
        Ok(Self::new(secret))
    }

    /// Returns the usual options.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            name: "roce0",
            secret,
            connections: 1 << 14,
            keys: 1 << 16,
            // The queue of each dispatcher is the backlog of its service point.
            backlog: 1 << 14,
            window: 128,
            timeout: 16,
            retries: 6,
            response_timeout: ConnectionOptions::USUAL.response_timeout,
            not_ready_retries: 6,
            not_ready_timer: 20,
            keep_alive: None,
            mtu: PathMtu::Bytes4096,
            path: PathChoice::Any,
            look_again: Duration::from_millis(1),
            receive_buffer: 4 << 20,
            polled: false,
            #[cfg(feature = "udp")]
            start_thread,
        }
    }
}
