//! Cost of the core and the mlx5 layout on a microcontroller.
//!
//! The image has 4 endpoints, 16 regions, 2 shared receive queues and no log.
//!
//! Each call is made once, on a device that does nothing on its own. The stack is painted before
//! and checked after. Each call prints its stack use in bytes, its number of instructions, and how
//! many of them it makes at a time with interrupts masked. The parts of the storage print their
//! sizes. The size of the image includes the calls and this program.
#![no_std]
#![no_main]

mod calls;
mod clock;
mod masked;
mod report;
mod setup;
mod stack;
mod still;

use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use dat_core::Abi;

/// Event slots: asynchronous, connection and consumer dispatchers.
///
/// The one for transfers takes none; its completions wait in their records.
const EVENTS: usize = 4 + 8 + 4;

#[cortex_m_rt::entry]
fn main() -> ! {
    // The attribute turns each of them into an exclusive reference.
    static mut STORAGE: setup::Storage = setup::Storage::new();
    static mut LENT: still::Lent = still::Lent::new();
    static mut OCCUPANCY: still::Occupancy = still::Occupancy::new();
    let end = match calls::all(STORAGE, LENT, OCCUPANCY) {
        Ok(()) => EXIT_SUCCESS,
        Err(error) => {
            report::line("failed", "code", error.code(Abi::V1_2));
            EXIT_FAILURE
        }
    };
    loop {
        debug::exit(end);
    }
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        debug::exit(EXIT_FAILURE);
    }
}
