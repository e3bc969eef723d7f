//! What the core and the mlx5 layout cost on a microcontroller: 4 endpoints, 16 regions, 2 shared receive queues, no log.
//!
//! Every call is made once on a device that does nothing by itself, with the stack painted before and looked at after. Each prints two lines, with the bytes of stack and with the instructions; and so do the parts of its storage. The size of the image is that of the calls and of this program.
#![no_std]
#![no_main]

mod calls;
mod clock;
mod report;
mod stack;
mod still;

use cortex_m as _;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use dat_core::Abi;

#[cortex_m_rt::entry]
fn main() -> ! {
    // The attribute makes each of them an exclusive reference.
    static mut STORAGE: calls::Storage = calls::Storage::new();
    static mut LENT: still::Lent = still::Lent::new();
    static mut TAKEN: still::Taken = still::Taken::new();
    let end = match calls::all(STORAGE, LENT, TAKEN) {
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
