//! The machine around the processor, a file for each. What every one of them has:
//!
//! - the way from where QEMU begins to `image_main`, with a stack, all memory mapped where it is or not at all, and what faults ending
//!   the image;
//! - `Barriers`, the order between processor and devices;
//! - `send`, a byte to the serial line, and `exit`, the end of the machine;
//! - `read_configuration` and `write_configuration`, words of a function on the first bus, and `WINDOWS`, from where on windows of
//!   devices may be placed, where no firmware of the machine did that before.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "riscv32")]
mod riscv32;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{Barriers, WINDOWS, exit, read_configuration, send, write_configuration};
#[cfg(target_arch = "riscv32")]
pub(crate) use riscv32::{Barriers, WINDOWS, exit, read_configuration, send, write_configuration};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Barriers, WINDOWS, exit, read_configuration, send, write_configuration};
