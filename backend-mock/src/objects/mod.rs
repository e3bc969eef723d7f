//! The objects of a fabric; none knows the world that holds it.

pub(crate) mod action;
pub(crate) mod adapter;
pub(crate) mod change;
pub mod coherence;
pub(crate) mod completion_ring;
pub(crate) mod control;
pub(crate) mod faults;
pub(crate) mod joining;
pub(crate) mod key_map;
pub(crate) mod links;
pub(crate) mod memories;
pub(crate) mod node;
pub(crate) mod qualifiers;
pub(crate) mod queue_pair;
pub(crate) mod region;
pub(crate) mod schedule;
pub(crate) mod shared_receive;
pub(crate) mod window;

#[cfg(feature = "std")]
pub(crate) use alloc::sync::Arc;
#[cfg(not(feature = "std"))]
pub(crate) use portable_atomic_util::Arc;
