//! The checks of the fabric, tried directly through the backend traits.

mod chunks;
mod coherence;
mod connections;
mod faults;
mod memory_access;
mod messages;
mod runs;
mod shared_receives;
mod support;
mod windows;
