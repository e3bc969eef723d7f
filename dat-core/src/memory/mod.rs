//! Protection zones, local and remote memory regions.

mod bind;
mod identity;
mod lmr;
mod lookup;
#[cfg(all(test, loom))]
mod models;
mod pz;
mod region;
mod rmr;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod triplet;

pub use lmr::{LmrCreated, LmrMemory, LmrParam, LmrRequest, LmrSource};
pub use lookup::LmrSlot;
pub(crate) use lookup::{LocalAccess, explain, zone_seal};
pub use pz::{PzParam, PzSlot};
pub use region::Region;
pub use rmr::{RmrBinding, RmrParam, RmrSlot};
pub use triplet::{LmrTriplet, RmrTriplet};
