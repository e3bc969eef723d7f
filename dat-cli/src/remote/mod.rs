//! Copies and measurements between two processes, `dat serve` and a client with `--connect`.
//!
//! A client sends its request in the private data of its connection request. A server that accepts
//! lends the client memory and sends its context in the acceptance; the client can access no other
//! memory. A server that refuses rejects the connection request. The data moves by RDMA Write, RDMA
//! Read or Send, as the command says; everything else moves in short messages ([`protocol`]).
//!
//! Only the code that opens devices depends on the backend, so tests run both ends on the mock.

mod budget;
pub(crate) mod commands;
pub(crate) mod connection;
pub(crate) mod counts;
pub(crate) mod data;
pub(crate) mod device;
mod echo;
pub(crate) mod file_store;
pub(crate) mod host_adapter;
pub(crate) mod patience;
pub(crate) mod plain;
pub(crate) mod protocol;
pub(crate) mod registered;
pub(crate) mod server;
pub(crate) mod session;
mod token;
pub(crate) mod transfer;
pub(crate) mod transport;

/// A client gets at most the memory that the program's buffers may have.
const _: () = assert!(protocol::MOST_BYTES == crate::memory::MOST_MEMORY);

#[cfg(test)]
mod tests;
