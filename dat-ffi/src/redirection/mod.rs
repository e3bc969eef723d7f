//! The registry of DAT 2.0, `libdat2`: which provider a call is for.
//!
//! ```text
//! a C program -> the calls of this module -> the table of the provider -> whatever the provider is
//! ```
//!
//! Handles are the providers' own, but for those of adapters, which are numbers of ours. What a provider hands out is noted with its
//! kind and adapter (`known`) until it is freed; so the provider of a handle is looked up, and no handle is ever followed. Those
//! that were never handed out, are gone, or are of another kind than the call takes are refused before any provider sees them, in
//! whichever argument they come.

mod adapters;
mod arguments;
mod calls;
mod extension;
mod known;
mod open;
mod providers;

pub use calls::*;
pub use extension::dat_extension_op;
pub use open::{dat_ia_close, dat_ia_openv, dats_get_ia_handle};
pub use providers::{
    dat_registry_add_provider, dat_registry_list_providers, dat_registry_remove_provider,
};
