//! The calls of the Direct Access Transport in firmware: two adapters in one image, each the driver of raw adapters on a model
//! device, walk through open, connection, messages, RDMA, windows, shared buffers, refusals and the end.
//!
//! What comes of every call is logged; `tour.txt` has the lines as they must be. The image ends through semihosting, with success only if
//! every call that must succeed did.
#![no_std]
#![no_main]

mod board;
mod party;
mod scenes;

// The critical section of one processor.
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
