//! QEMU machines without an operating system, for images: start, exit, first PCI bus, log.
//!
//! Each processor's machine is one file, which provides:
//!
//! - the path from QEMU's entry to `image_main`: a stack, and all memory either mapped to its own
//!   address or not mapped. A fault ends the image;
//! - `Barriers`, the order between processor and devices;
//! - `send`, which sends a byte over the serial line, and `exit`, which ends the machine;
//! - `CONFIGURATION`, the address of the first bus's configuration space, or `read_configuration`
//!   and `write_configuration` where it is not in memory;
//! - `WINDOWS`, the start of the range for windows of devices, if the machine's firmware has not
//!   placed them.
#![no_std]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod bus;
#[cfg(not(target_arch = "x86_64"))]
mod configuration;
mod log;
#[cfg(target_arch = "riscv32")]
mod riscv32;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "riscv32")]
use riscv32 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub use bus::Function;
pub use processor::{Barriers, exit};
