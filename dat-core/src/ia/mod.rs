//! The interface adapter: everything hangs on it.

mod adapter;
mod control;
mod progress;
mod settle;

pub use adapter::{Ia, OpenError};
pub(crate) use control::Control;
