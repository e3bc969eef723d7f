//! Backends on a host: how threads sleep on a device, and what it counts.

use core::fmt;
use core::task::Waker;

use super::{Backend, BackendError, NotLocal};
use crate::event::{ThreadWait, Wait};
use crate::time::Instant;

/// A backend for programs of an operating system, whose threads share its adapters.
///
/// The constants describe the data path; a default is right for every backend and costs time only.
pub trait HostBackend:
    Backend<
        CompletionQueue: Send + 'static,
        SendQueue: Send + 'static,
        ReceiveQueue: Send + 'static,
        SharedReceiveQueue: Send + 'static,
    > + Send
    + Sized
    + 'static
{
    /// The part of the backend that its callers keep while the core owns the rest.
    type Driver: HostDriver;

    /// True if posts may allocate.
    const POSTS_ALLOCATE: bool = true;

    /// True if posts, binds and dequeues make system calls in which a thread can be cancelled.
    const DATA_CALLS_ARE_CANCELLED: bool = true;

    /// True if a device pins registered memory, and so checks that it exists.
    ///
    /// Other backends copy by instructions of this process.
    const PINS_MEMORY: bool = false;

    /// Returns the driver; called before the core owns the backend.
    fn driver(&self) -> Self::Driver;
}

/// Sleeps, wake-ups, time and counts of a device. Clones belong to the same device.
///
/// No call is on the data path, and none is made under a lock of the core.
pub trait HostDriver: Clone + Send + Sync + 'static {
    /// The object that a thread sleeps on.
    type Wait: Wait + Send + 'static;

    /// True if connections need a thread that sleeps in [`connection_wait`](Self::connection_wait)
    /// while the program waits in another adapter.
    const NEEDS_CONNECTION_THREAD: bool = false;

    /// Makes a wait for one more thread, in which events of the device wake it.
    ///
    /// # Errors
    /// - [`BackendError::NotSupported`]: nobody can sleep on the device. Its threads sleep until
    ///   [`wake_on_events`](Self::wake_on_events) wakes them.
    /// - [`BackendError::Resources`], [`BackendError::Descriptors`]: out of memory or descriptors.
    fn wait(&self) -> Result<Self::Wait, BackendError>;

    /// Makes a wait for a thread that handles connections only; completions need not wake it.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    fn connection_wait(&self) -> Result<Self::Wait, BackendError> {
        self.wait()
    }

    /// Returns the current time, on the clock of the waits.
    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    /// Lets events of the device wake `waker`, from now on; called at most once for an adapter.
    ///
    /// The device wakes it without a lock of its own, on any thread. Returns false if nothing
    /// reports events, so that the adapter has to be polled.
    fn wake_on_events(&self, waker: Waker) -> bool {
        let _ = waker;
        false
    }

    /// Makes sure that what comes from now on wakes that waker, before a thread sleeps until then;
    /// returns true if something has come.
    ///
    /// A device may leave events to a program that looks for them all the time.
    fn before_sleep(&self) -> bool {
        false
    }

    /// Lets a device without a thread of its own do what is due at `now`.
    ///
    /// Called before each look for events.
    fn act(&self, now: Instant) -> Activity {
        let _ = now;
        Activity::default()
    }

    /// Returns true if [`act`](Self::act) must be called after a post.
    fn acts_after_posts(&self) -> bool {
        false
    }

    /// Reports the counts that the device has, each since the adapter was opened.
    fn counts(&self, report: &mut dyn FnMut(Count, u64)) {
        let _ = report;
    }

    /// Returns the error of a send that the system refused since the last call, if any.
    ///
    /// A transport that repeats what is not sent shows such a refusal only as a silent peer.
    fn refused_send(&self) -> Option<std::io::Error> {
        None
    }

    /// Returns why the last connection, or service point, that had to stay on this host could not,
    /// once.
    fn not_local(&self) -> Option<NotLocal> {
        None
    }
}

/// Result of [`HostDriver::act`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Set if the device did something.
    pub acted: bool,
    /// Time of the next call, if nothing else happens first.
    pub next: Option<Instant>,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A count of an adapter, under the name that all backends share.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Count {
            $($(#[$doc])* $name,)*
        }

        impl Count {
            /// Returns the name for reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counts! {
    /// Packets received.
    PacketsReceived = "packets_received",
    /// Bytes of the packets received.
    BytesReceived = "bytes_received",
    /// Packets sent.
    PacketsSent = "packets_sent",
    /// Bytes of the packets sent.
    BytesSent = "bytes_sent",
    /// Packets with a wrong ICRC.
    WrongIcrc = "wrong_icrc",
    /// Packets that no decoder takes, or that name no queue pair.
    Dropped = "dropped",
    /// Congestion notifications.
    CongestionNotifications = "congestion_notifications",
    /// Connections that a peer refused because it has no room for another request.
    RefusedWithoutRoom = "refused_without_room",
    /// Requests posted.
    Posts = "posts",
    /// Bytes of the requests posted.
    PostedBytes = "posted_bytes",
    /// Packets of requests, with repetitions.
    RequestPackets = "request_packets",
    /// Packets of requests that were repeated.
    Retransmits = "retransmits",
    /// Times without progress after which requests were repeated.
    Timeouts = "timeouts",
    /// Losses that the peer reported.
    Losses = "losses",
    /// RNR NAKs received: the peer had posted no receive.
    RnrNaksReceived = "rnr_naks_received",
    /// Requests of peers that were executed.
    Executed = "executed",
    /// Packets of peers that came twice.
    Duplicates = "duplicates",
    /// Packets of peers that came before an earlier one.
    OutOfOrder = "out_of_order",
    /// RNR NAKs sent: this side had posted no receive.
    RnrNaksSent = "rnr_naks_sent",
    /// Connections made.
    Connections = "connections",
    /// Connections made whose packets go through shared memory.
    LocalConnections = "local_connections",
    /// Pairs of queues in shared memory that are open.
    LocalPairs = "local_pairs",
    /// Packets received through shared memory.
    LocalPacketsReceived = "local_packets_received",
    /// Bytes of the packets received through shared memory.
    LocalBytesReceived = "local_bytes_received",
    /// Packets sent through shared memory.
    LocalPacketsSent = "local_packets_sent",
    /// Bytes of the packets sent through shared memory.
    LocalBytesSent = "local_bytes_sent",
    /// Times that a queue in shared memory had no room.
    LocalFull = "local_full",
    /// Doorbells rung for peers that slept.
    Doorbells = "doorbells",
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
