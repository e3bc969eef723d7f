//! The registry of DAT 2.0, `libdat2`, which finds the provider of each call.
//!
//! ```text
//! a C program -> the calls of this module -> the table of the provider -> any provider
//! ```
//!
//! Handles are the providers' own, except those of adapters, which are numbers of this registry. A
//! handle that a provider returns is noted with its kind and adapter (`known`) until it is freed.
//! A table maps a handle to its provider; no handle is dereferenced. In every argument, a handle
//! that was never returned, is gone, or has another kind than the call takes is refused before a
//! provider sees it.

mod adapters;
mod arguments;
mod calls;
mod extension;
mod known;
mod open;
mod providers;
pub(crate) mod roles;

pub use calls::*;
pub use extension::dat_extension_op;
pub use open::{dat_ia_close, dat_ia_openv, dats_get_ia_handle};
pub use providers::{
    dat_registry_add_provider, dat_registry_list_providers, dat_registry_remove_provider,
};
