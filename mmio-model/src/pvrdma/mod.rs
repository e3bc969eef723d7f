//! A paravirtual adapter in this process: shared region, command channel, rings behind page directories, doorbells.
//!
//! As of the other layout, every device is an adapter of a [`Fabric`](backend_mock::Fabric) behind its front. It knows of
//! the driver only what lies in memory and comes through registers, by [`backend_mmio::pvrdma::defs`].
//!
//! # What is not as in an adapter
//! - Bus addresses of consumer memory are those of the processor. Regions are refused whose pages do not lie so.
//! - States of queue pairs are those of their commands, but connections, and with them who the peers are, are those of the fabric.
//! - A send doorbell is obeyed at once; receives are looked for in every [`PvrdmaFabric::step`], and before each command.
//! - A completion queue that is full waits, and does not overrun.
//! - The number of a queue pair that is gone goes to the next one at once, which few adapters do so soon.

mod command;
mod complete;
mod device;
mod fabric;
mod fetch;
mod lent;
mod lie;
mod manner;
mod memory;
mod region;
mod registers;
mod scrawl;
mod sideband;

pub use fabric::{LentPvrdma, PvrdmaFabric, PvrdmaModel, SpeakingPvrdma};
pub use lent::PvrdmaLent;
pub use lie::PvrdmaLie;
pub use manner::{Messages, Numbers, PvrdmaManner, Refusal};
pub use region::Identity;
pub use registers::PvrdmaRegisters;
pub use sideband::PvrdmaSideband;
