//! Machines of QEMU without an operating system, for images: how they begin and end, devices on the first bus, the log.
//!
//! The machine around the processor is a file for each. What every one of them has:
//!
//! - the way from where QEMU begins to `image_main`, with a stack, all memory mapped where it is or not at all, and what faults ending
//!   the image;
//! - `Barriers`, the order between processor and devices;
//! - `send`, a byte to the serial line, and `exit`, the end of the machine;
//! - `CONFIGURATION`, where the configuration of functions on the first bus begins in memory, or `read_configuration` and
//!   `write_configuration` where it is reached otherwise; and `WINDOWS`, from where on windows of devices may be placed, where no firmware of the
//!   machine did that before.
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
