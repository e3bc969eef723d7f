//! The interface adapter: everything hangs on it.

mod adapter;
mod control;
mod settle;

pub use adapter::{Ia, OpenError};
pub(crate) use control::Control;
