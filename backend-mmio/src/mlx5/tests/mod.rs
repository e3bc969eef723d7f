//! Tests of the driver on a scripted device.

mod device;
mod generations;
mod scripted_device;
mod shared_capacity;
