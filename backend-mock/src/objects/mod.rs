//! The objects of a fabric; none knows the world that holds it.

pub(crate) mod action;
pub(crate) mod adapter;
pub mod coherence;
pub(crate) mod completions;
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
pub(crate) mod window;
