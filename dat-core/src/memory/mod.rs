//! Protection zones, local and remote memory regions.

mod lookup;
mod pz;
mod region;
mod rmr;
mod triplet;

pub use lookup::LmrSlot;
pub(crate) use lookup::{LocalAccess, explain, zone_tag};
pub use pz::PzSlot;
pub use region::Region;
pub use rmr::RmrSlot;
pub use triplet::{LmrTriplet, RmrTriplet};
