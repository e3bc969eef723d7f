//! The machine as the driver sees it: barriers, shared memory, registers and caches.

pub mod cache;
mod hal;
mod register_words;
mod registers;

#[cfg(any(
    target_arch = "aarch64",
    target_arch = "riscv32",
    target_arch = "riscv64"
))]
pub use cache::CoherentHal;
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub use hal::CoherentHal;
pub(crate) use hal::read_consumer;
pub use hal::{DeviceUnit, DeviceWord, DmaMemory, DmaView, Hal};
pub use register_words::{MappedWords, RegisterWords};
pub use registers::{MappedRegisters, RegisterIo};
