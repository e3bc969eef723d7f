//! `dat rsm`: remote shared memory between two nodes.

pub(crate) mod pair;
