//! Slots of the connection manager over queues.

use core::sync::atomic::AtomicU8;

use dat_core::backend::PrivateData;
use dat_core::time::Instant;

use super::channel::Channel;
use super::connection_manager::Peer;
use super::message::Kind;

/// State of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The slot is free.
    #[default]
    Free,
    /// Requested here.
    Connecting,
    /// Requested by the peer and not answered.
    Requested,
    /// Accepted; the other side is not ready yet.
    Accepting,
    /// Established.
    Connected,
    /// Requested here and cancelled; the answer is pending.
    Cancelled,
    /// Ended here; the message to the peer is pending.
    Over,
    /// Requested here, to an unknown host.
    Unreachable,
}

/// Slot for one connection or attempt.
#[derive(Debug, Default)]
pub struct Connection {
    pub(super) state: State,
    /// Number of the local queue pair.
    pub(super) queue_pair: u32,
    pub(super) channel: usize,
    /// Generation of the slot.
    pub(super) generation: u16,
    /// The peer's name of the connection, and its queue pair.
    pub(super) peer_name: u32,
    pub(super) peer: Peer,
    /// Kind of the next message to send.
    pub(super) outgoing: Option<Kind>,
    pub(super) private_data: PrivateData,
    pub(super) qualifier: u64,
    pub(super) port: u64,
    /// Set once the request was sent to the peer.
    pub(super) request_sent: bool,
    /// Set until an answer to the request arrives or is sent.
    pub(super) awaits_answer: bool,
    /// Time at which the accepting side gives up.
    pub(super) deadline: Option<Instant>,
}

/// Slot for one listener.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listener {
    pub(super) token: u64,
    pub(super) qualifier: Option<u64>,
}

/// Storage of a connection manager; the slice lengths limit its objects.
#[derive(Debug)]
pub struct ConnectionStorage<'s, S, R> {
    /// One channel per other host, and two for connections from this host to itself.
    pub channels: &'s mut [Option<Channel<S, R>>],
    /// One slot per connection or attempt; at most 65535.
    pub connections: &'s mut [Connection],
    /// One slot per listener.
    pub listeners: &'s mut [Listener],
    /// [`CHANNEL_BYTES`](super::CHANNEL_BYTES) per channel.
    ///
    /// The device and the processor both access the memory without synchronisation. On platforms
    /// that are not coherent it must be uncached.
    pub memory: &'static mut [AtomicU8],
}
