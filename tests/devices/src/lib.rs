//! Device model with the mlx5 data path, in process.
//!
//! The device reads descriptors, moves bytes and writes completions.
//!
//! Its interface is an adapter's: rings and doorbell records in memory that the driver shares, a
//! register window, numbered objects. It learns of the driver only through memory, as
//! [`backend_mmio::defs::mlx5`] defines it. Each model device uses an adapter of a
//! [`Fabric`](backend_mock::Fabric). The fabric moves the bytes, enforces keys, privileges and
//! bounds at the target, and carries connections.
//!
//! ```
//! use backend_mock::{FabricOptions, NodeOptions};
//! use dat_core::backend::Backend;
//! use mmio_model::ModelFabric;
//!
//! let fabric = ModelFabric::new(FabricOptions::default());
//! let device = fabric.device(NodeOptions::new("model0", 1));
//! assert_eq!(device.ia_attributes().adapter_name, "model0");
//! ```
//!
//! # Differences from an adapter
//! - Keys of regions are keys of the fabric. Keys of windows belong to the device: 24 bits and a
//!   variant. Reading a descriptor translates them to keys of the fabric.
//! - A send doorbell takes effect at once. Receives are read in every [`ModelFabric::step`] and
//!   before each command.
//! - Descriptors start in order. Without a fence, a descriptor does not wait for earlier binds and
//!   RDMA Reads. Their duration is set by [`FabricOptions`](backend_mock::FabricOptions)
//!   (`bind_latency`, `read_latency`): long ones reveal a missing fence.
//!
//! # Without std
//! The feature `bare` replaces `std`, which is the default. The crate then needs only an allocator,
//! and runs in a firmware image together with the driver.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(not(any(feature = "std", feature = "bare")))]
compile_error!("one of the features `std` and `bare` is needed");

mod bad_cqe;
mod complete;
mod connection_manager;
mod control;
mod corrupt;
mod device;
mod fabric;
mod fetch;
mod hal;
mod inline_memory;
mod lent;
mod lock;
#[cfg(feature = "std")]
mod mailbox_backend;
mod mailbox_device;
mod memory;
mod network;
mod outsider;
pub mod pvrdma;
mod registers;

pub use bad_cqe::BadCqe;
pub use control::ModelControl;
pub use fabric::{
    LentBackend, LentOverQueues, ModelBackend, ModelConnectionManager, ModelFabric,
    OverQueuesBackend, OverQueuesStorage,
};
pub use hal::ModelHal;
pub use lent::Lent;
#[cfg(feature = "std")]
pub use mailbox_backend::{InProcessEnd, ModelMailboxBackend};
pub use mailbox_device::{MailboxDevice, Regions, driver_address};
pub use network::ModelNetwork;
pub use outsider::Outsider;
pub use registers::ModelRegisters;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
