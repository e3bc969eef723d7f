//! The bodies of the fuzz targets, and the encoders of their seeds.

#[cfg(feature = "c")]
pub mod cabi;
#[cfg(feature = "c")]
pub mod config;
pub mod device;
pub mod rsm_wire;
pub mod sched;
pub mod serve_wire;
pub mod sideband_wire;
#[cfg(feature = "c")]
pub mod verbs;
