//! Drivers of an adapter: a thread, a future, a descriptor or a blocking call.

#[cfg(feature = "fd")]
mod descriptor;
mod driver;
mod wait;

#[cfg(feature = "fd")]
pub use descriptor::DescriptorDriver;
pub use driver::Driver;
#[cfg(feature = "rsm")]
pub(crate) use driver::deadline_after;
pub(crate) use driver::spawn;
#[cfg(feature = "rsm")]
pub(crate) use wait::thread_waker;
pub(crate) use wait::{block_on, blocking, deadline_of};
