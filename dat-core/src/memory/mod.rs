//! Protection zones, local and remote memory regions.

mod identity;
mod lookup;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
pub(crate) mod tests;
mod triplet;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod pz;

mod lmr;

mod sync;

mod rmr;

pub use crate::region::Region;
pub use lmr::{LmrCreated, LmrMemory, LmrParam, LmrRequest, LmrSource};
pub use lookup::LmrSlot;
pub(crate) use lookup::{LocalAccess, explain, slot_index, zone_of_seal, zone_seal};
pub use pz::{PzParam, PzSlot};
pub(crate) use rmr::{Binding, MISSED, NO_BIND, RemoteRegion};
pub use rmr::{RmrBinding, RmrParam, RmrSlot};
pub use triplet::{LmrTriplet, RmrTriplet};
