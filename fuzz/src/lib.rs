//! The bodies of the fuzz targets, and the encoders of their seeds.

#[cfg(feature = "c")]
pub mod cabi;
pub mod cm_wire;
#[cfg(feature = "c")]
pub mod config;
mod consumer;
pub mod device;
pub mod roce_packet;
pub mod roce_queue;
pub mod roce_session;
pub mod roce_wire;
pub mod rsm_wire;
#[cfg(feature = "sched")]
pub mod sched;
pub mod script;
pub mod serve_wire;
#[cfg(all(feature = "c", feature = "sched"))]
pub mod targets;
#[cfg(feature = "c")]
pub mod verbs;
