//! A network in this process that behaves like RDMA hardware, for tests, fuzzing, demonstrations and measurements.
//!
//! A [`Fabric`] joins any number of adapters ([`MockBackend`], made by [`Fabric::node`]), each of which is a backend of
//! `dat-core`. Bytes really move between registered regions, and the *target* enforces what hardware enforces: remote keys
//! and their generations, remote privileges, bounds, protection domains, the order of a queue pair, fences, missing receive
//! buffers, RDMA Read depth, memory windows whose key changes with every bind.
//!
//! # Time and order
//!
//! Nothing happens by itself: [`Fabric::step`] performs the next action and moves the virtual time to it. Where the rules
//! leave an order open, the seed decides, so that a run is reproduced by its options (seed and [`FaultPlan`] included) and
//! the calls made. With [`Fabric::spawn_thread`] a thread steps instead, by the clock, and runs are no longer reproducible.
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

mod attributes;
mod backend;
pub mod coherence;
mod completion_queue;
mod connection;
mod execute;
mod fabric;
mod fault;
mod link;
mod memory;
mod node;
mod options;
mod queue_pair;
mod receive_queue;
mod region;
mod schedule;
mod send_queue;
mod shared_receive;
mod table;
mod wait;
mod window;
mod world;

pub use backend::MockBackend;
pub use completion_queue::MockCompletionQueue;
pub use fabric::{Fabric, FabricThread};
pub use fault::{Fault, FaultPlan, RemoteError};
pub use options::{BufferOrder, FabricOptions, Limits, NodeOptions};
pub use receive_queue::{MockReceiveQueue, MockReceiveSlot};
pub use send_queue::{MockSendQueue, MockSendSlot};
pub use wait::MockWait;
