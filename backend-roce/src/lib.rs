//! RoCEv2 for the Direct Access Transport: RDMA in the payload of UDP datagrams.
//!
//! [`proto`] is the protocol as state machines, without memory of its own, clock or socket.
//! [`port`] is the way of its datagrams. The backend over both, with sockets and a thread of the
//! adapter, is not there yet.
//!
//! The requirements are numbered in `docs/spec/rocev2.md` (ROCE).
#![no_std]

#[cfg(test)]
extern crate std;

pub mod port;
pub mod proto;
