//! Copies and measurements between two processes, `dat serve` and a client with `--connect`.
//!
//! The private data of a client's connection request holds its request. The server lends the client
//! memory, and nothing else is accessible; its acceptance holds the memory's context. Otherwise the
//! server rejects. The data moves by RDMA Write, RDMA Read or Send, as the command says; everything
//! else moves in short messages ([`protocol`]).
//!
//! Only the code that opens devices depends on the backend, so tests run both ends on the mock.

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

/// A client gets at most the memory that the program's buffers may have.
const _: () = assert!(protocol::MOST_BYTES == crate::host::MOST_MEMORY);

#[cfg(test)]
mod tests;
