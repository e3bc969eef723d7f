//! DAT 1.2: the library `libdat`, with a registry of its own.
//!
//! A foreign handle is that of a provider that registered itself, or not a handle. The kernel reads
//! its first word, which must be the address of a registered table. So any value may be passed
//! while no other provider is registered. A stale handle of another provider goes to that provider
//! if it still begins with its table.

mod by_backend;
pub(crate) mod calls;
mod edition;
mod foreign;
mod forms;
mod registry;

pub use calls::*;
pub use registry::dat_provider_explain;

/// Types of the arguments, under the names in the list of calls.
pub mod types {
    pub use super::edition::V1;
    pub use crate::boundary::{
        Address, Agent, CrParam, EvdParam, In, List, LongTriplet, Out, ProviderInfo, PspParam,
        PzParam, RegionDescription, RspParam, SrqAttributes, SrqParam, StaticText, Text,
    };
    pub use crate::calls::edition::{Added, Form, Length, Triplet};
    pub use crate::handles::CHandle;

    /// `DAT_PROVIDER`.
    pub type Guest = crate::boundary::Provider<{ crate::boundary::FUNCTIONS_1_2 }>;
    crate::calls::edition::types_of!(V1);
}
