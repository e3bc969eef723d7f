//! Opening an adapter, by an address or on a backend.

mod adapter;
pub(crate) mod schemes;

#[cfg(feature = "rsm")]
pub(crate) use adapter::ASYNC_EVENTS;
pub use adapter::{Adapter, Options};
pub use schemes::register;
