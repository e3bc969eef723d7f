//! A network in this process with the behaviour of RDMA hardware.
//!
//! For tests, fuzzing, demonstrations and measurements.
//!
//! A [`Fabric`] connects any number of adapters ([`MockBackend`], made by [`Fabric::node`]), each a
//! backend of `dat-core`. Bytes move between registered regions, and the *target* enforces the
//! rules of hardware. It checks remote keys and their generations, remote privileges, bounds and
//! protection domains. It keeps the order of a queue pair, fences and the RDMA Read depth, and
//! notices missing receive buffers. The key of a memory window changes with every bind.
//!
//! ```
//! use backend_mock::{Fabric, FabricOptions, NodeOptions};
//! use dat_core::backend::Backend;
//!
//! let fabric = Fabric::new(FabricOptions { seed: 7, ..FabricOptions::default() });
//! let near = fabric.node(NodeOptions::new("near", 1));
//! let far = fabric.node(NodeOptions::new("far", 2).non_coherent());
//! assert!(!near.provider_attributes().lmr_sync_req);
//! assert!(far.provider_attributes().lmr_sync_req);
//! // Hand them to `Ia::open`, make calls, and let the fabric act on them:
//! fabric.run_until_idle(1000);
//! ```
//!
//! The examples `write`, `bind` and `shared_receive` of this crate are complete programs:
//! `cargo run --package backend-mock --example write`.
//!
//! # Time and order
//!
//! [`Fabric::step`] performs the next action and advances the virtual time to it; without it
//! nothing happens. Where the rules leave an order open, the seed decides, so a run is reproduced
//! by its options (with seed and [`FaultPlan`]) and the calls made. With [`Fabric::spawn_thread`] a
//! thread steps by the clock instead, and runs are not reproducible.
//!
//! Within one connection, requests act at the target in posting order, and completions come in
//! posting order. The seed decides:
//! - all times within the ranges of [`FabricOptions`];
//! - the order of actions of different queue pairs that are due together;
//! - whether an RDMA Read returns the data of its admission or of its answer, so that without a
//!   fence a later write may or may not be overtaken;
//! - the buffers of shared receive queues with [`BufferOrder::Seeded`].
//!
//! Adapters made with [`NodeOptions::extended`] also have the operations beyond the interface. A
//! write with immediate data completes a receive of the peer. An atomic operation counts as an RDMA
//! Read and needs both remote privileges.
//!
//! The status of a completion tells the requester of a refusal. The connection then breaks at both
//! ends, and later requests are flushed without effect.
//!
//! # Faults
//!
//! Faults are data: a [`FaultPlan`] in the [`FabricOptions`], or [`Fabric::inject`].
//!
//! # Caches
//!
//! A host made with [`NodeOptions::non_coherent`] keeps the device's view apart from the
//! processor's. [`coherence`] says when each becomes visible to the other.
//!
//! # Limits
//!
//! The time of a transfer does not depend on its size: there is no bandwidth. All memory is in this
//! process.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `std`, default | a thread that steps the fabric, and waits that sleep |
//! | `bare` | instead of `std`: the crate needs only an allocator |
//! | `arbitrary` | fault plans from the bytes of a fuzzer |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

// For the helpers that the tests of this folder share with those in `tests`.
#[cfg(test)]
extern crate self as backend_mock;

#[cfg(not(any(feature = "std", feature = "bare")))]
compile_error!("one of the features `std` and `bare` is needed");

mod attributes;
mod backend;
mod execute;
mod fabric;
mod fault;
#[cfg(feature = "std")]
mod host;
mod objects;
mod options;
mod queues;
#[cfg(all(test, feature = "std"))]
mod scale_tests;
mod shared;
mod steps;
#[cfg(feature = "std")]
mod wait;
mod world;

pub use backend::MockBackend;
pub use fabric::Fabric;
#[cfg(feature = "std")]
pub use fabric::FabricThread;
pub use fault::{ConnectionEnd, Fault, FaultPlan, Happened, RemoteError};
#[cfg(feature = "std")]
pub use host::MockDriver;
pub use objects::coherence;
pub use objects::joining::Name;
pub use options::{BufferOrder, FabricOptions, Limits, NodeOptions};
pub use queues::{
    MockCompletionQueue, MockReceiveQueue, MockReceiveSlot, MockSendQueue, MockSendSlot,
};
#[cfg(feature = "std")]
pub use wait::MockWait;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
