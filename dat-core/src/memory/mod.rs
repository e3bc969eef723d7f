//! Protection zones, local and remote memory regions.

mod identity;
mod lmr;
mod lookup;
#[cfg(all(test, loom))]
mod models;
mod pz;
mod rmr;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod triplet;

pub use crate::region::Region;
pub use lmr::{LmrCreated, LmrMemory, LmrParam, LmrRequest, LmrSource};
pub use lookup::LmrSlot;
pub(crate) use lookup::{LocalAccess, explain, slot_index, zone_of_seal, zone_seal};
pub use pz::{PzParam, PzSlot};
pub(crate) use rmr::{Binding, MISSED, NO_BIND, RemoteRegion};
pub use rmr::{RmrBinding, RmrParam, RmrSlot};
pub use triplet::{LmrTriplet, RmrTriplet};
