//! The Direct Access Transport as a `no_std` state machine.
#![no_std]

#[cfg(any(feature = "std", test))]
extern crate std;

pub mod attributes;
pub mod backend;
pub mod connection;
pub mod endpoint;
pub mod error;
mod error_text;
pub mod event;
pub mod flags;
mod ia;
pub mod id;
pub mod memory;
mod record;
mod shared;
mod storage;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod time;

pub use error::{Abi, Cause, Error, ErrorKind, Result, Subtype};
pub use error_text::strerror;
pub use ia::{Ia, OpenError};
pub use record::RecordSlot;
pub use storage::{IaStorage, Storage};
