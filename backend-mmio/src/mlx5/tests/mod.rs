//! The driver on a device that is played.

mod device;
mod lives;
mod played;
mod shared_rooms;
