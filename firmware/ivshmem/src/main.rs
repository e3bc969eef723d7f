//! The core on a bare machine, connected to a process of the host.
//!
//! Both see the memory of QEMU's `ivshmem` device. The process is the adapter, whose rings lie in
//! that memory, and has an endpoint of its own (`tests/devices/examples/ivshmem`). The two
//! endpoints connect, exchange messages, and write and read each other's memory. Then one of the
//! sides ends without a disconnect.
//!
//! Each call's result is logged; `expected.txt` has the expected lines. The machine ends with
//! success only if every call that must succeed did.
#![no_std]
#![no_main]

mod platform;
mod scenes;

/// Entry point, which the machine's start code calls.
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
