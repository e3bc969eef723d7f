//! DAT 2.0: calls that differ from 1.2, and the provider that a registry loads.

mod edition;
pub(crate) mod extension;
mod forms;
pub(crate) mod function_table;
mod registry;
mod unsupported;

pub use crate::boundary::{In, Plain, ProviderInfo, StaticText, Text};
pub(crate) use edition::V2;
pub use registry::{explain, register, unregister};

/// Types of the arguments.
pub mod types {
    pub use super::edition::V2;
    pub use crate::boundary::{
        Address, Agent, CrParam, EvdParam, In, List, Out, ProviderInfo, PspParam, PzParam,
        RegionDescription, RspParam, ShortTriplet, SrqAttributes, SrqParam, StaticText, Text,
        VariableArguments,
    };
    pub use crate::handles::CHandle;

    crate::calls::edition::types_of!(V2);
}
