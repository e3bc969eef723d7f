//! Owned memory: regions, pool buffers, and their loan to operations.

mod buffer;
mod copies;
mod domain;
mod gather;
mod lend;
#[cfg(feature = "pages")]
mod pages;
mod pinned;
mod pool;
mod read;
mod region;
mod registered;
mod shared;
mod shares;
mod slice;
mod slot;

pub use buffer::Buffer;
pub(crate) use copies::{copies, range_of};
pub(crate) use domain::Domain;
pub use gather::Gather;
pub(crate) use lend::{Lend, check_same_adapter, total};
pub use lend::{Memory, MemoryMut};
#[cfg(feature = "pages")]
pub use pages::{MappedFile, Pages};
#[cfg(feature = "rsm")]
pub(crate) use pinned::Pinned;
pub use pinned::{Foreign, Stable, StableRead};
pub(crate) use pool::Pool;
pub use read::ReadRegion;
pub use region::Region;
pub(crate) use registered::{Bindable, Registered};
pub use shared::SharedRegion;
pub(crate) use shares::Shares;
pub use slice::RegionSlice;
pub(crate) use slot::{Slot, slots};
