//! The core on a machine without an operating system, with QEMU's paravirtual adapter.
//!
//! Two endpoints of one adapter connect to each other, exchange messages, fail, reconnect and end.
//! Only the crate `machine` depends on the machine.
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
