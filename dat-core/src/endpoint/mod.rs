//! Endpoints and shared receive queues.

mod batch;
mod bind;
mod configure;
mod connect;
mod create;
mod disconnect;
#[expect(clippy::module_inception, reason = "the object kind of the folder")]
mod endpoint;
mod extended;
mod free;
mod limits;
mod link;
mod modify;
mod post;
mod query;
mod receive;
mod refuse;
mod srq;
mod state;
#[cfg(test)]
mod tests;
mod watermark;

pub use batch::{BatchOperation, BatchReceive, BatchRefused, BatchRequest};
pub use connect::ConnectParam;
pub use endpoint::EndpointSlot;
#[cfg(test)]
pub(crate) use endpoint::Limit;
pub(crate) use endpoint::{Endpoint, ReceiveSide, RequestLimits, WorkRing};
pub use extended::Extended;
pub(crate) use link::Ending;
pub(crate) use post::{Refusal, Request, send_flags};
pub use query::{EpParam, EpStatus, RecvQuery};
pub(crate) use receive::Receive;
pub(crate) use refuse::{not_ready, out_of_room, refused_by_device, refused_flags};
pub(crate) use srq::SharedReceives;
pub use srq::{SrqParam, SrqSlot};
#[cfg(test)]
pub(crate) use state::next;
pub(crate) use state::{Call, Legal, Trigger, permit};
