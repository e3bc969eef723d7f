//! Device model with the mlx5 data path, in process.
//!
//! The device reads descriptors, moves bytes and writes completions.
//!
//! Its interface is an adapter's: rings and doorbell records in memory that the driver shares, a
//! register window, numbered objects. It learns of the driver only through memory, as
//! [`backend_mmio::mlx5::defs`] defines it. Each model device uses an adapter of a
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
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(not(any(feature = "std", feature = "bare")))]
compile_error!("one of the features `std` and `bare` is needed");

mod carried;
mod completion;
mod control;
mod device;
mod fabric;
mod fetch;
mod hal;
mod junction;
mod lent;
mod lie;
mod lock;
mod mailbox;
mod memory;
mod outsider;
#[cfg(feature = "std")]
mod posted;
pub mod pvrdma;
mod scrawl;
mod sideband;
mod window;

pub use control::ModelControl;
pub use fabric::{
    LentBackend, LentSpeaking, ModelBackend, ModelFabric, ModelSideband, SpeakingBackend,
    SpeakingStorage,
};
pub use hal::ModelHal;
pub use junction::ModelJunction;
pub use lent::Lent;
pub use lie::Lie;
pub use mailbox::{MailboxDevice, Regions, driver_address};
pub use outsider::Outsider;
#[cfg(feature = "std")]
pub use posted::{Beside, PostedBackend};
pub use window::ModelRegisters;
