//! Endpoints and shared receive queues.

mod connect;
mod create;
mod endpoint;
mod free;
mod modify;
mod post;
mod query;
mod srq;
mod state;
mod watermark;

pub use connect::ConnectParam;
pub use endpoint::EndpointSlot;
pub(crate) use endpoint::{Endpoint, ReceiveSide, WorkRing};
pub use query::{EpParam, EpStatus};
pub(crate) use srq::SharedReceives;
pub use srq::{SrqParam, SrqSlot};
pub use watermark::RecvQuery;
