//! Copies and measurements between two processes: `dat serve` at one end, `--connect` at the other.
//!
//! A client tells what it wants in the private data of its connection request. The server lends it memory, of which nothing
//! else can be reached, and answers with its context; or it rejects. The data moves by RDMA Write, RDMA Read or Send, as
//! the command says; all else is said in short messages ([`protocol`]).
//!
//! Everything but the devices themselves is independent of the backend, so that tests let both ends run on the mock.

mod arena;
mod client;
mod load;
mod protocol;
mod server;
mod session;
mod shelf;
mod station;
mod token;
mod transfer;

#[cfg(feature = "verbs")]
mod both;
#[cfg(feature = "verbs")]
pub(crate) mod verbs;

/// No client is given more than the programs may have.
const _: () = assert!(protocol::MOST_BYTES == crate::host::MOST_MEMORY);

#[cfg(test)]
mod tests;
