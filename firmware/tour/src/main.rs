//! The calls of the Direct Access Transport in firmware, on model devices.
//!
//! One image has two adapters, each the mlx5 driver on a model device. They go through open,
//! connection, messages, RDMA, windows, shared receive queues, refusals and close.
//!
//! Each call's result is logged; `expected.txt` has the expected lines. The image ends through
//! semihosting, with success only if every call that must succeed did.
#![no_std]
#![no_main]

mod board;
mod party;
mod scenes;

// Provides the critical section of a single processor.
use cortex_m as _;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};

#[cortex_m_rt::entry]
fn main() -> ! {
    board::start();
    let end = match scenes::all() {
        Ok(()) => EXIT_SUCCESS,
        Err(error) => {
            defmt::error!("{}", error);
            EXIT_FAILURE
        }
    };
    loop {
        debug::exit(end);
    }
}
