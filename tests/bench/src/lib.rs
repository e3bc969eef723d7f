//! An in-memory ring device, and an adapter on it that is ready to post.
//!
//! The device costs as little as a real one could: a descriptor is written in place, a doorbell
//! word is stored, and completions are read from a ring of words. The counted instructions are
//! therefore those of the core.
#![no_std]

mod device;
mod ring;
#[cfg(feature = "verbs")]
mod verbs;
mod world;

pub use device::{LoopDevice, Queues, RingDevice};
pub use ring::{RingCompletions, RingReceives, RingSends, Rings, SEGMENTS};
pub use world::{World, WorldMemory};
