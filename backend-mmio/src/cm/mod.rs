//! Connection management, outside the queue pairs or over them.
//!
//! | type | manages connections |
//! |---|---|
//! | [`ConnectionManager`] | by any means of the platform, which implements it |
//! | [`PeerResolver`] | the same, for drivers that move queue pairs through their states |
//! | [`QueueConnectionManager`] | by messages over Sends and receives of the device itself |
//! | [`MailboxConnectionManager`] | by commands to the program behind a mailbox |
//!
//! [`QueueConnectionManager`] keeps one queue pair per known host, a *channel*, and exchanges
//! [`message`]s on it. It allocates nothing: [`ConnectionStorage`] limits channels, connections and
//! listeners. The platform names the host at the other end of a channel ([`Network`]). The driver
//! does the rest: [`open_channels`](crate::mlx5::MmioBackend::open_channels).
//!
//! # Order over queue pairs
//! A connection is established for the requesting side when it is accepted, and for the accepting
//! side when it receives the confirmation. Only then does the accepting side's queue pair start to
//! receive, so that no message overtakes the confirmation. The device repeats messages that arrive
//! earlier.
//!
//! # Faulty peers
//! A received message is copied once. It must have this version and exactly its length, and the
//! sender must have had a free slot for it. A peer can only return slots that were taken, and may
//! have four requests without an answer. A peer that violates this, or does not accept a message,
//! loses the channel: connections over it break, attempts fail, and no further message is read. The
//! name of a connection is valid only on its channel; messages with other names are ignored.

mod channel;
mod connection_manager;
mod connection_storage;
pub mod message;
mod open_channels;
mod over_mailbox;
mod over_queues;
#[cfg(test)]
mod tests;

pub use channel::{CHANNEL_BYTES, Channel, DEPTH};
pub use connection_manager::{ConnectionManager, Peer, PeerResolver};
pub use connection_storage::{Connection, ConnectionStorage, Listener};
pub use open_channels::{MmioQueueConnectionManager, PvrdmaQueueConnectionManager};
pub use over_mailbox::MailboxConnectionManager;
pub use over_queues::{Network, QueueConnectionManager};
