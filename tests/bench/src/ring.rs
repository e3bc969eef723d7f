//! The ring device: the worked example of a backend (`docs/backends.md`).
//!
//! - The driver is in `queues.rs` (data path) and `backend.rs` (control path). This is the part
//!   that a backend of your own replaces line by line. `host.rs` is the part for hosts.
//! - The device is in `device.rs` (commands and connections), `network.rs` (requests and keys) and
//!   `memory.rs` (its side of the rings). It is a model in the same process that moves in steps.

mod backend;
mod device;
#[cfg(feature = "host")]
mod host;
mod memory;
mod network;
mod queues;

pub(crate) use backend::PROVIDER;
pub use backend::RingBackend;
pub use device::Wire;
pub use memory::{Outcome, Work};
pub use queues::{
    COMPLETIONS, CompletionRing, DESCRIPTORS, Describe, Descriptor, Ring, RingCompletions,
    RingQueue, RingReceives, RingSends, SEGMENTS, Slot,
};
