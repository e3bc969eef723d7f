//! A device with the mlx5 data path, in this process: it reads descriptors, moves bytes and writes completions.
//!
//! The front is that of an adapter: rings and doorbell records in memory that the driver shares, a register window, objects
//! by number. It knows of the driver only what lies in memory, by [`backend_mmio::mlx5::defs`]. Behind it every
//! model device is an adapter of a [`Fabric`](backend_mock::Fabric), which moves the bytes, enforces keys, privileges and bounds at the target, and carries
//! connections.
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
//! # What is not as in an adapter
//! - Keys of regions are those of the fabric. Keys of windows are the device's, 24 bits and a variant, and the fabric's are looked up
//!   when a descriptor is read.
//! - A send doorbell is obeyed at once; receives are looked for in every [`ModelFabric::step`], and before each command.
//! - Descriptors start in order. Without a fence one does not wait for the binds and RDMA Reads before it, which take as long as
//!   [`FabricOptions`](backend_mock::FabricOptions) say (`bind_latency`, `read_latency`): with long ones a fence that is missing shows.
//!
//! # Without std
//! With the feature `bare` in the place of `std`, which is default, it needs an allocator alone, and lives in a firmware image beside the driver.
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
