//! Driver for raw RDMA adapters: rings in memory, doorbells in a register window, nothing in between.
//!
//! A `no_std` backend of `dat-core` that allocates nothing. It writes descriptors, rings doorbells and reads completions
//! of the mlx5 data path ([`mlx5`]); what a platform does differently comes through four traits:
//!
//! | trait | is |
//! |---|---|
//! | [`Hal`] | barriers by intent, cache maintenance; for aarch64 and RISC-V in [`cache`] |
//! | [`RegisterIo`] | the register window that doorbells are in |
//! | [`mlx5::Control`] | objects of the device: regions, queues, their numbers; a hypervisor, a boot program, `mlx5dv` |
//! | [`Sideband`] | the channel over which connections come about |
//!
//! Paravirtual adapters ([`pvrdma`]) are driven as a whole: their commands are the driver's own, and the platform gives a
//! [`pvrdma::Mapping`], a [`pvrdma::Rendezvous`] and [`RegisterWords`] in the place of the last three.
//!
//! A device may also be a program at the other end of shared memory ([`mailbox`]): then the control path, connections and registers are
//! commands to it.
//!
//! # Storage
//! All memory is lent: [`mlx5::Storage`] for what the driver remembers, [`DmaMemory`] for what the device shares. Queues
//! get a run of either and give it back when they are destroyed.
//!
//! # A device that lies
//! Nothing that the device wrote is used before it was checked, nor read again afterwards. Indices must be those of the oldest
//! request that is posted, numbers those of a queue that is there, lengths within what was posted. The first thing that is
//! not so is kept as a [`DeviceFault`]; from then on the device is not looked at any more, and no register of it is written.
//! The next `poll_control` halts it; every connection is reported broken, and after that the driver itself completes what
//! was posted on queue pairs, flushed. Buffers of shared queues that are with the device are kept.
//!
//! # Unsafe code
//! In the modules of [`Hal`], [`RegisterIo`] and [`RegisterWords`] and of the processors in [`cache`], beside the promises of the backends themselves, which rest on those that
//! [`mlx5::Control`] and [`pvrdma::Mapping`] ask for.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cache;
mod calls;
mod fault;
mod hal;
pub mod mailbox;
pub mod mlx5;
pub mod over_queues;
pub mod pvrdma;
mod registers;
mod runs;
mod sideband;
mod words;

#[cfg(any(
    target_arch = "aarch64",
    target_arch = "riscv32",
    target_arch = "riscv64"
))]
pub use cache::CoherentHal;
pub use fault::DeviceFault;
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub use hal::CoherentHal;
pub use hal::{DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal};
pub use registers::{MappedRegisters, RegisterIo};
pub use sideband::{Peer, Sideband};
pub use words::{MappedWords, RegisterWords};
