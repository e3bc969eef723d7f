//! Layouts of memory, registers and commands, one module per kind of device.
//!
//! Driver and device model share them. Each value converts to words and back.

pub mod mailbox;
pub mod mlx5;
pub mod pvrdma;
