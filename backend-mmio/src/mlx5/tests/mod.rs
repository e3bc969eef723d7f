//! Tests of the driver on a scripted device.

mod device;
mod lives;
mod played;
mod shared_rooms;
