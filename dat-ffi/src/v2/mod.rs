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

    /// `DAT_EVENT`.
    pub type Event = crate::boundary::Event<V2>;
    /// `DAT_IA_ATTR`.
    pub type IaAttributes = crate::boundary::IaAttributes<V2>;
    /// `DAT_PROVIDER_ATTR`.
    pub type ProviderAttributes = crate::boundary::ProviderAttributes<V2>;
    /// `DAT_EP_ATTR`.
    pub type EpAttributes = crate::boundary::EpAttributes<V2>;
    /// `DAT_EP_PARAM`.
    pub type EpParam = crate::boundary::EpParam<V2>;
    /// `DAT_LMR_PARAM`.
    pub type LmrParam = crate::boundary::LmrParam<V2>;
    /// `DAT_RMR_PARAM`.
    pub type RmrParam = crate::boundary::RmrParam<V2>;
    /// `DAT_CNO_PARAM`.
    pub type CnoParam = crate::boundary::CnoParam<V2>;
}
