//! Paravirtual adapter, in process.
//!
//! It has a shared region, a command channel, rings of pages that directories list, and doorbells.
//!
//! As in the mlx5 layout, each device uses an adapter of a [`Fabric`](backend_mock::Fabric). It
//! learns of the driver only through memory and registers, as [`backend_mmio::defs::pvrdma`]
//! defines them.
//!
//! # Differences from an adapter
//! - Bus addresses of consumer memory are the processor's addresses. A region whose pages lie
//!   elsewhere is refused.
//! - Commands set the states of queue pairs. Connections, and so the peers, are the fabric's.
//! - A send doorbell takes effect at once. Receives are read in every [`PvrdmaFabric::step`] and
//!   before each command.
//! - A full completion queue waits; it does not overrun.
//! - The number of a destroyed queue pair goes to the next one at once, earlier than on most
//!   adapters.

mod bad_cqe;
mod command;
mod complete;
mod connection_manager;
mod corrupt;
mod device;
mod fabric;
mod fetch;
mod lent;
mod memory;
mod quirks;
mod region;
mod registers;

pub use bad_cqe::PvrdmaBadCqe;
pub use connection_manager::PvrdmaConnectionManager;
pub use fabric::{LentPvrdma, OverQueuesPvrdma, PvrdmaFabric, PvrdmaModel};
pub use lent::PvrdmaLent;
pub use quirks::{Messages, Numbers, PvrdmaQuirks, Refusal};
pub use region::Identity;
pub use registers::PvrdmaRegisters;
