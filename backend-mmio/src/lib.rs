//! Driver for raw RDMA adapters: rings in memory, doorbells in a register window.
//!
//! A `no_std` backend of `dat-core` that allocates nothing. Its modules:
//!
//! | module | contains |
//! |---|---|
//! | [`mlx5`] | driver of the mlx5 data path; the platform implements [`mlx5::Control`] |
//! | [`pvrdma`] | driver of paravirtual adapters; the platform implements [`pvrdma::Mapping`] |
//! | [`mailbox`] | a program at the other end of shared memory as an mlx5 device |
//! | [`cm`] | connection management: [`cm::ConnectionManager`], over queue pairs, over a mailbox |
//! | [`ring`] | tables of slots that both drivers use: posted descriptors, queues, device state |
//! | [`defs`] | layouts of memory, registers and commands, one module per kind of device |
//! | `platform` | [`Hal`], [`RegisterIo`], [`RegisterWords`], [`DmaMemory`], [`cache`] |
//!
//! # Start here
//! A *ring* is a queue's memory of descriptors or completions. The driver *rings* a *doorbell* to
//! notify the device. To follow a post and its completion, read in this order:
//!
//! 1. `platform/hal.rs` and `platform/registers.rs`: memory shared with the device, barriers,
//!    doorbells.
//! 2. `ring/mod.rs`, then `ring/request_slot.rs`, `ring/queue_pair_slot.rs` and
//!    `ring/queue_cell.rs`: the driver's record of a posted descriptor, of a queue pair, and of a
//!    queue.
//! 3. `mlx5/send_queue.rs`: a post writes a descriptor and rings the doorbell.
//! 4. `mlx5/completion_queue.rs`: a poll checks a completion and returns its request.
//! 5. `fault.rs` and `ring/device_state.rs`: a failed check stops the driver.
//! 6. `mlx5/backend.rs` and `mlx5/control.rs`: creation of queues, and the commands that the
//!    platform carries out.
//! 7. `pvrdma/mod.rs`: the other layout, with its own commands; `cm/mod.rs`: connections.
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
//! `platform` and [`mailbox`] contain `unsafe` code. So do the implementations of `Backend`; they
//! rest on the safety requirements of [`mlx5::Control`] and [`pvrdma::Mapping`].
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]
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
