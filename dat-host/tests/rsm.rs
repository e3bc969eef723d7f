//! Remote shared memory: segments, vectors, barriers and signals, blocking and as futures.

mod common;
#[path = "rsm/local_memory.rs"]
mod local_memory;
#[path = "rsm/nodes.rs"]
mod nodes;
#[path = "rsm/pair.rs"]
mod pair;
#[path = "rsm/segments.rs"]
mod segments;
#[path = "rsm/signals.rs"]
mod signals;
