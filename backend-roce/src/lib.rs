//! RoCEv2 for the Direct Access Transport: RDMA in the payload of UDP datagrams.
//!
//! [`proto`] is the protocol as state machines, without clock or socket; their slots are lent or
//! owned. [`port`] is the way of its datagrams. With the feature `std`, [`RoceBackend`] is the
//! backend over both; with `udp`, it has sockets and a thread.
//!
//! The requirements are numbered in `docs/spec/rocev2.md` (ROCE).
//!
//! # Example
//! Two adapters connect over loop-back, and one writes to the memory of the other.
//!
#![cfg_attr(
    feature = "udp",
    doc = concat!("```\n", include_str!("../examples/write.rs"), "```")
)]
//!
//! # Features
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | none | the protocol as state machines, and `Port`: `no_std`, no allocation, no clock, no socket |
//! | `alloc` | `Outbox`, which gathers packets into runs for one send |
//! | `std` | the backend over a `Port`, and the processor's instructions for the CRC |
//! | `udp` | sockets and the thread: `RoceBackend::open`, `addresses`; Linux |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate self as backend_roce;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(feature = "std")]
mod adapter;
#[cfg(feature = "udp")]
mod address;
#[cfg(feature = "std")]
mod attributes;
#[cfg(feature = "std")]
mod backend;
#[cfg(feature = "std")]
mod counts;
#[cfg(feature = "std")]
mod device;
#[cfg(feature = "udp")]
mod forks;
#[cfg(feature = "std")]
mod host;
#[cfg(feature = "udp")]
#[doc(hidden)]
pub mod local;
#[cfg(feature = "std")]
mod options;
pub mod port;
pub mod proto;
#[cfg(feature = "std")]
mod queues;
#[cfg(feature = "std")]
mod reserve;
#[cfg(feature = "std")]
mod shared;
#[cfg(all(test, feature = "std"))]
mod tests;
#[cfg(feature = "udp")]
mod udp;
#[cfg(feature = "std")]
mod wait;

#[cfg(feature = "std")]
pub use adapter::{
    Attempt, ConnectionTerms, ReceiveAttributes, Receiver, RemoteRights, SendAttributes, Tuning,
};
#[cfg(feature = "udp")]
pub use address::{RoceAddress, addresses, parse_address, parse_ip, wildcard};
#[cfg(feature = "std")]
pub use backend::{RoceBackend, RoceDriver};
#[cfg(feature = "std")]
pub use counts::{AdapterCounts, ConnectionCounts, LocalCounts};
#[cfg(feature = "std")]
pub use dat_queues::{Detail, Opcode};
#[cfg(feature = "std")]
pub use device::{
    Bind, Binding, Data, DeviceCompletion, DeviceQueue, INLINE_MAX, Operation, PairOptions,
    PairState, Post, PostError, Posts, RegionAccess, RoceDevice,
};
#[cfg(feature = "udp")]
pub use forks::{generation, process_generation};
#[cfg(feature = "udp")]
#[cfg_attr(docsrs, doc(cfg(feature = "udp")))]
pub use options::StartThread;
#[cfg(feature = "std")]
pub use options::{PathChoice, RoceOptions};
#[cfg(feature = "std")]
pub use queues::{
    RoceCompletionQueue, RoceReceiveQueue, RoceReceiveSlot, RoceSendQueue, RoceSendSlot,
};
#[cfg(feature = "std")]
pub use wait::RoceWait;

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "udp"))]
#[doc = include_str!("../README.md")]
struct Readme;
