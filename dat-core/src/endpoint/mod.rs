//! Endpoints and shared receive queues.

mod configure;
mod endings;
#[expect(clippy::module_inception, reason = "the object kind of the folder")]
mod endpoint;
mod limits;
mod refuse;
mod state;
#[cfg(test)]
mod tests;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod create;

mod modify;

mod query;

mod free;

mod connect;

mod post;

mod receive;

mod batch;

mod bind;

mod extended;

mod srq;

pub use batch::{BatchOperation, BatchReceive, BatchRefused, BatchRequest};
pub use connect::ConnectParam;
pub(crate) use endings::Ending;
pub use endpoint::EndpointSlot;
#[cfg(test)]
pub(crate) use endpoint::Limit;
pub(crate) use endpoint::{Endpoint, ReceiveSide, RequestLimits, WorkRing};
pub use extended::Extended;
pub(crate) use post::{Refusal, Request, send_flags};
pub use query::{EpParam, EpStatus, RecvQuery};
pub(crate) use receive::Receive;
pub(crate) use refuse::{not_ready, out_of_room, refused_by_device, refused_flags};
pub(crate) use srq::SharedReceives;
pub use srq::{SrqParam, SrqSlot};
#[cfg(test)]
pub(crate) use state::next;
pub(crate) use state::{Call, Legal, Trigger, permit};
