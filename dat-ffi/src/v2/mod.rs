//! DAT 2.0: what it has beside the calls that it shares with 1.2, and the provider that a registry loads.

mod edition;
pub(crate) mod extension;
mod forms;
mod registry;
pub(crate) mod table;
mod unsupported;

pub use crate::boundary::{In, Plain, ProviderInfo, StaticText, Text};
pub(crate) use edition::V2;
pub use registry::{explain, register, unregister};
