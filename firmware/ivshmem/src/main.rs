//! The core on a machine without an operating system, and a process of the host: both see the memory of QEMU's `ivshmem` device. The process is
//! the adapter, whose rings lie in that memory, and has an endpoint of its own (`mmio-model/examples/ivshmem`). The two endpoints connect, exchange
//! messages, write and read each other's memory, and one of the sides ends without a word.
//!
//! What comes of every call is logged; `expected.txt` has the lines as they must be. The machine ends with success only if every call that
//! must succeed did.
#![no_std]
#![no_main]

mod platform;
mod scenes;

/// Where the start of the machine goes to.
#[expect(unsafe_code, reason = "the name that every machine calls")]
#[unsafe(no_mangle)]
extern "C" fn image_main() -> ! {
    let end = match scenes::all() {
        Ok(()) => 0,
        Err(error) => {
            defmt::error!("{}", error);
            1
        }
    };
    machine::exit(end)
}
