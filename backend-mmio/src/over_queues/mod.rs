//! Connections by messages over Sends and receives of the device itself.
//!
//! [`QueueSideband`] keeps a queue pair to every host that it knows, a *channel*, and speaks [`message`] on it. Nothing is
//! allocated: channels, connections and listeners are as many as [`SidebandStorage`] has places for. The platform says who is at
//! the other end of a channel ([`Junction`]); all else is the driver's: [`open_channels`](crate::mlx5::MmioBackend::open_channels).
//!
//! # Order
//! A connection stands for the side that asked when it is accepted, and for the other one when it hears of that. Not before it does is the
//! queue pair of that side taken to where it receives data, so that no message overtakes the news; a device repeats what comes too
//! early until then.
//!
//! # A peer that lies
//! What came is copied once and must be a message, of this version, of exactly its length, for which the sender had a place. Places that
//! are given back must have been taken; requests that wait for an answer are four at most. Whoever does otherwise, or does not take what was sent, loses the
//! channel: what was connected over it is broken, what was to be fails, and no message of it is read any more. Names of connections are believed
//! only from the channel that they are of; others are passed over.

mod channel;
pub mod message;
mod setup;
mod sideband;
#[cfg(test)]
mod tests;

pub use channel::{CHANNEL_BYTES, Channel, DEPTH};
pub use setup::{MmioQueueSideband, PvrdmaQueueSideband};
pub use sideband::{Connection, Junction, Listener, QueueSideband, SidebandStorage};
