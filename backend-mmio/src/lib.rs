//! Driver for raw RDMA adapters: rings in memory, doorbells in a register window.
//!
//! A `no_std` backend of `dat-core` that allocates nothing. It writes descriptors, rings doorbells
//! and reads completions of the mlx5 data path ([`mlx5`]). A platform supplies four traits:
//!
//! | trait | is |
//! |---|---|
//! | [`Hal`] | barriers by intent, cache maintenance; for aarch64 and RISC-V in [`cache`] |
//! | [`RegisterIo`] | the register window that doorbells are in |
//! | [`mlx5::Control`] | objects of the device; for a hypervisor, a boot program or `mlx5dv` |
//! | [`ConnectionManager`] | connection management outside the queue pairs |
//!
//! The driver operates paravirtual adapters ([`pvrdma`]) as a whole and issues their commands
//! itself. Their platform implements [`pvrdma::Mapping`], [`pvrdma::PeerResolver`] and
//! [`RegisterWords`] instead of the last three traits.
//!
//! A device can also be a program at the other end of shared memory ([`mailbox`]). The control
//! path, connections and registers are commands to that program.
//!
//! # Storage
//! The caller lends all memory: [`mlx5::Storage`] for the driver's own records, [`DmaMemory`] for
//! memory shared with the device. Each queue takes a run of both and gives it back when it is
//! destroyed.
//!
//! # Faulty devices
//! The driver reads each value that the device wrote once and checks it before use. An index must
//! be that of the oldest posted request. A number must be that of an existing queue. A length must
//! be within the posted buffer. The first violation is kept as a [`DeviceFault`]. From then on the
//! driver reads no completions of the device and writes none of its registers. The next
//! `poll_control` halts the device. The core reports every connection as broken. Then the driver
//! completes all requests posted on queue pairs with status flushed. Buffers of shared receive
//! queues that the device holds stay posted.
//!
//! # Unsafe code
//! The modules of [`Hal`], [`RegisterIo`], [`RegisterWords`] and [`mailbox`], and those of the
//! processors in [`cache`], contain `unsafe` code. So do the implementations of `Backend`; they
//! rest on the safety requirements of [`mlx5::Control`] and [`pvrdma::Mapping`].
#![no_std]

#[cfg(test)]
extern crate std;

mod attributes;
pub mod cm;
mod common_calls;
pub mod defs;
mod fault;
pub mod mailbox;
pub mod mlx5;
mod platform;
pub mod pvrdma;
pub mod ring;

pub use fault::DeviceFault;
#[cfg(any(
    target_arch = "x86",
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv32",
    target_arch = "riscv64"
))]
pub use platform::CoherentHal;
pub use platform::{
    DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal, MappedRegisters, MappedWords, RegisterIo,
    RegisterWords, cache,
};
