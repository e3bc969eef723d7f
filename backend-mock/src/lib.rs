//! A network in this process that behaves like RDMA hardware, for tests, fuzzing, demonstrations and measurements.
//!
//! A [`Fabric`] joins any number of adapters ([`MockBackend`], made by [`Fabric::node`]), each of which is a backend of
//! `dat-core`. Bytes really move between registered regions, and the *target* enforces what hardware enforces: remote keys
//! and their generations, remote privileges, bounds, protection domains, the order of a queue pair, fences, missing receive
//! buffers, RDMA Read depth, memory windows whose key changes with every bind.
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
//! The examples `write`, `bind` and `shared_receive` of this crate are whole programs: `cargo run --package backend-mock --example write`.
//!
//! # Time and order
//!
//! Nothing happens by itself: [`Fabric::step`] performs the next action and moves the virtual time to it. Where the rules
//! leave an order open, the seed decides, so that a run is reproduced by its options (seed and [`FaultPlan`] included) and
//! the calls made. With [`Fabric::spawn_thread`] a thread steps instead, by the clock, and runs are no longer reproducible.
//!
//! Within one connection requests act at the target in posting order, and completions come in posting order. Left to the
//! seed are: all times within the ranges of [`FabricOptions`], actions of different queue pairs that are due together,
//! whether an RDMA Read carries what its target held when it was let in or when the answer left (so that without a fence a
//! later write may be overtaken either way), and the buffers of shared receive queues with [`BufferOrder::Seeded`].
//!
//! Adapters made with [`NodeOptions::extended`] have the operations beyond the interface as well: writes whose number completes a receive of
//! the peer, and atomic ones, which take the places of RDMA Reads and need both remote rights.
//!
//! A requester learns of a refusal by the status of its completion, the connection breaks at both ends, and what was posted
//! behind is flushed and did nothing.
//!
//! # Faults
//!
//! What goes wrong is data: a [`FaultPlan`] in the [`FabricOptions`], or [`Fabric::inject`].
//!
//! # Caches
//!
//! A host made with [`NodeOptions::non_coherent`] keeps a view of the device apart from the view of the processor; see
//! [`coherence`] for what becomes visible when.
//!
//! # Limits
//!
//! Transfers take their time as a whole, whatever their size: there is no bandwidth. All memory is in this process.
//!
//! # Without std
//!
//! With the feature `bare` in the place of `std`, which is default, the crate needs an allocator alone: no thread steps the fabric, and nobody
//! sleeps for it.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(not(any(feature = "std", feature = "bare")))]
compile_error!("one of the features `std` and `bare` is needed");

mod attributes;
mod backend;
pub mod coherence;
mod completion_queue;
mod connection;
mod direct;
mod execute;
mod extended;
mod fabric;
mod fault;
mod join;
mod link;
mod memory;
mod node;
mod options;
mod piece;
mod queue_pair;
mod receive_queue;
mod region;
mod schedule;
mod send_queue;
mod shared;
mod shared_receive;
mod table;
#[cfg(feature = "std")]
mod wait;
mod window;
mod world;

pub use backend::MockBackend;
pub use completion_queue::MockCompletionQueue;
pub use fabric::Fabric;
pub use fault::{Fault, FaultPlan, Happened, RemoteError, Way};
pub use join::Name;
pub use options::{BufferOrder, FabricOptions, Limits, NodeOptions};
pub use receive_queue::{MockReceiveQueue, MockReceiveSlot};
pub use send_queue::{MockSendQueue, MockSendSlot};
#[cfg(feature = "std")]
pub use shared::FabricThread;
#[cfg(feature = "std")]
pub use wait::MockWait;
