//! Endpoints and shared receive queues.

#[expect(clippy::module_inception, reason = "the object kind of the folder")]
mod endpoint;
mod post;
mod refuse;
mod srq;

pub use endpoint::EndpointSlot;
pub(crate) use endpoint::{Endpoint, ReceiveSide, WorkRing};
pub(crate) use post::{request_report, send_flags};
pub(crate) use refuse::{not_ready, refused_flags};
pub(crate) use srq::SharedReceives;
pub use srq::{SrqParam, SrqSlot};
