//! Tables, lists and runs of slots in memory that the caller lends.

#[cfg(feature = "std")]
mod free_list;
#[cfg(all(feature = "std", not(loom)))]
mod free_runs;
mod key_chains;
mod runs;
mod slot_list;
mod table;

#[cfg(feature = "std")]
pub use free_list::FreeLink;
#[cfg(all(feature = "std", not(loom)))]
pub(crate) use free_runs::FreeRun;
pub(crate) use key_chains::{KeyChains, KeyLinks, Keyed};
pub(crate) use runs::RunSlot;
pub use runs::Runs;
pub(crate) use slot_list::{SlotLink, VisitLink, VisitList};
pub use table::Table;
pub(crate) use table::vacant;
