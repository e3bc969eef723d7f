//! The ring device, and an adapter on its queues that is ready to post.
//!
//! - [`RingBackend`] is the worked example of a backend: its devices are models in memory that
//!   connect and move data.
//! - [`World`] is an adapter for benchmarks on a [`LoopDevice`], which moves no data. Posting and
//!   polling on its queues cost as little as on a real device: a descriptor is written in place, a
//!   doorbell word is stored, and completions are read from a ring of words. The counted
//!   instructions are therefore those of the core.
#![no_std]

extern crate alloc;

mod loopback;
mod ring;
#[cfg(feature = "verbs")]
mod verbs;
mod world;

pub use loopback::{BindingSends, LoopDevice, Queues, RingDevice, Rings};
pub use ring::{
    COMPLETIONS, CompletionRing, DESCRIPTORS, Describe, Descriptor, Outcome, Ring, RingBackend,
    RingCompletions, RingQueue, RingReceives, RingSends, SEGMENTS, Slot, Wire, Work,
};
#[cfg(feature = "verbs")]
pub use verbs::VerbsQueues;
pub use world::{World, WorldMemory};
