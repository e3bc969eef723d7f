//! Who is woken: drivers by events of their device, and futures by changes.

mod bell;
mod device;
mod timer;
mod wakers;

pub(crate) use bell::Bell;
pub use device::Polled;
pub(crate) use device::{Device, Notice};
pub(crate) use timer::{Armed, ring_at};
pub(crate) use wakers::{Wakers, poll_state};
