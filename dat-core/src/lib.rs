//! The Direct Access Transport as a `no_std` state machine.
#![no_std]

pub mod attributes;
pub mod error;
mod error_text;
pub mod flags;

pub use error::{Abi, Cause, Error, ErrorKind, Result, Subtype};
pub use error_text::strerror;
