//! Address space for the tables of an adapter, which grow in it.
//!
//! An adapter of `dat-core` borrows its tables. A [`Reservation`] reserves address space for the
//! largest tables that the system grants, and takes memory only for the slots in use. An
//! [`OwnedIa`] is an adapter together with its reservation.
//!
//! ```
//! use backend_mock::{Fabric, FabricOptions, NodeOptions};
//! use dat_core::sync::HostLock;
//! use dat_storage::{Limits, OwnedIa};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(FabricOptions::default());
//! let backend = fabric.node(NodeOptions::new("near", 1));
//! let ia = OwnedIa::<_, HostLock>::open(backend, &Limits::default(), 16)?;
//! let zone = ia.pz_create()?;
//! ia.pz_free(zone)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//! A new adapter reserves up to 2 GiB of address space, and takes less than 1 MiB of memory. Each
//! table makes 64 KiB accessible when its first slot is used, then as much as it has, and at most
//! 2 MiB at a time. The system provides each page when it is first touched; in a process that locks
//! its memory (`mlockall`), when it becomes accessible.
//!
//! A system that is not a Unix reserves nothing: there an adapter has the sizes that it starts
//! with, and takes memory for all of them at once.
//!
//! # Children of `fork`
//! [`forks`] has values that a child of `fork` does not share with its parent.
//!
//! # Libraries for C
//! `heap` has their allocator, and `threads` their threads, which get no signals.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arena;
pub mod forks;
pub mod heap;
mod limits;
mod memory;
mod owned;
mod reservation;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(unix)]
pub mod threads;
mod words;

pub use arena::Arena;
pub use limits::Limits;
pub use owned::OwnedIa;
pub use reservation::Reservation;
pub use words::{Words, Zeroed};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
