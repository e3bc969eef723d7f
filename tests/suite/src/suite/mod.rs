//! The tests, one file per group of requirements.
//!
//! [`conformance_suite!`](crate::conformance_suite) lists them all, grouped by the trait that their
//! bed needs.

pub mod batch;
pub mod cno;
pub mod connection;
pub mod device;
pub mod disconnect;
pub mod dto;
pub mod endpoint;
pub mod endpoint_life;
pub mod epw;
pub mod epw_refusals;
pub mod evd;
pub mod extended;
pub mod ia;
pub mod lifecycles;
mod list;
pub mod memory;
pub mod post;
pub mod read;
pub mod refusals;
pub mod rmb;
pub mod rmb_refusals;
pub mod rmr;
pub mod rsm_barrier;
pub mod rsm_failure;
pub mod rsm_hostile;
pub mod rsm_impostor;
pub mod rsm_limits;
pub mod rsm_local;
pub mod rsm_map;
pub mod rsm_refusal;
pub mod rsm_revocation;
pub mod rsm_segment;
pub mod rsm_signal;
pub mod rsm_single;
pub mod rsm_synchronise;
pub mod rsm_vector;
pub mod srq;
pub mod srqr;
pub mod states;
pub mod sync;
pub mod wait;
