//! DAT 2.0: the calls, and the provider that a registry loads.

mod cno;
mod connect;
mod context;
mod cr;
mod ep;
mod evd;
mod event;
mod ia;
mod lmr;
mod post;
mod psp;
mod pz;
mod registry;
mod result;
mod rmr;
mod rsp;
mod srq;
pub(crate) mod table;
mod unsupported;

pub use crate::boundary::{In, Plain, ProviderInfo, Text};
pub use registry::{register, unregister};
