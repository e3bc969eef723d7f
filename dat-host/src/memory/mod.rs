//! Owned memory: regions, pool buffers, and their loan to operations.

mod buffer;
mod lent;
mod pinned;
mod pool;
mod region;
mod registered;
mod slice;
mod slot;

pub use buffer::Buffer;
pub use lent::Memory;
pub(crate) use lent::{Lend, Lent, Object};
pub use pinned::{Foreign, Stable};
pub(crate) use pool::Pool;
pub use region::Region;
pub(crate) use registered::Registered;
pub use slice::RegionSlice;
pub(crate) use slot::{Slot, slots};
