//! The protocol: packets, the reliable connection and connection management.
//!
//! Each state machine takes packets and the time, and gives packets and outcomes. The caller lends
//! the tables and the buffers, and moves the datagrams.
//!
//! | module | contains |
//! |---|---|
//! | [`packet`] | the headers of a packet, their codec and the opcodes |
//! | [`icrc`] | the invariant CRC and the recovery of the IPv4 identification |
//! | [`requester`] | the half of a queue pair that sends requests |
//! | [`responder`] | the half of a queue pair that executes requests of the peer |
//! | [`queue_pair`] | both halves, with what a connection agreed on |
//! | [`connection`] | management datagrams, and both sides of a connection |
//! | [`numbers`] | keys, QPNs and communication ids that no peer can guess |
//! | [`memory`] | what the two halves need of local memory and of keys |
//!
//! # Bytes of a peer
//! A decoder reads each byte through a checked cursor, so no input makes it panic (ROCE-26).
#![forbid(unsafe_code)]

mod buffer;
pub(crate) mod bytes;
pub mod connection;
pub mod icrc;
pub mod memory;
pub mod numbers;
pub mod packet;
mod path_mtu;
mod psn;
pub mod queue_pair;
pub mod requester;
pub mod responder;
mod slots;
mod time;

pub use buffer::{BUFFER_UNIT, BufferRoom};
pub use path_mtu::PathMtu;
pub use psn::Psn;
pub use slots::Slots;
pub use time::{Earliest, coded_time};
