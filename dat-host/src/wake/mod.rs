//! Wake-ups: of drivers by events of their device, and of futures by changes.

mod device;
mod driver_wakers;
mod timer;
mod wakers;

pub use device::Polled;
pub(crate) use device::{Device, Notice};
pub(crate) use driver_wakers::DriverWakers;
pub(crate) use timer::{Armed, wake_at};
pub(crate) use wakers::{Wakers, poll_state};
