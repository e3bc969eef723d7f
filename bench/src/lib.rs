//! An in-memory ring device, and a world on it that is ready to post.
//!
//! The device is the cheapest that a real one could be: a descriptor is written in place, a doorbell
//! word is stored, completions are read from a ring of words. So what is counted is the core.
#![no_std]

mod device;
mod ring;
#[cfg(feature = "verbs")]
mod verbs;
mod world;

pub use device::{LoopDevice, Queues, RingDevice};
pub use ring::{RingCompletions, RingReceives, RingSends, Rings, SEGMENTS};
pub use world::{World, WorldMemory};
