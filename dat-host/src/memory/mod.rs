//! Owned memory: regions, pool buffers, and their loan to operations.

mod buffer;
mod lent;
mod pinned;
mod pool;
mod region;
mod registered;
mod shared;
mod slice;
mod slot;

pub use buffer::Buffer;
pub(crate) use lent::{Lend, Lent, Object};
pub use lent::{Memory, MemoryMut};
pub use pinned::{Foreign, Stable};
pub(crate) use pool::Pool;
pub use region::Region;
pub(crate) use registered::Registered;
pub use shared::SharedRegion;
pub use slice::RegionSlice;
pub(crate) use slot::{Slot, slots};
