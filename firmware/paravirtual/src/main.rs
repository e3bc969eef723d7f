//! The core on a machine without an operating system drives the paravirtual adapter of QEMU: two endpoints of one adapter, connected
//! with each other, exchange messages, fail, begin anew and end. What machine it is, only the crate `machine` knows.
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
