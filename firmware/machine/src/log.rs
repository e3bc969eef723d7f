//! The log, frames that go out by the serial line, and the end of an image that panics.
#![expect(unsafe_code, reason = "the log is one for all; a room of its own")]

use core::cell::UnsafeCell;
use core::panic::PanicInfo;

use crate::processor;

/// What puts frames together.
struct Frames(UnsafeCell<defmt::Encoder>);

// SAFETY: there is one processor, and no interrupt.
unsafe impl Sync for Frames {}

static FRAMES: Frames = Frames(UnsafeCell::new(defmt::Encoder::new()));

fn send(bytes: &[u8]) {
    bytes.iter().copied().for_each(processor::send);
}

#[defmt::global_logger]
struct Log;

// SAFETY: frames are begun and ended by one processor without interrupts, so that they do not mix.
unsafe impl defmt::Logger for Log {
    fn acquire() {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).start_frame(send) }
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).end_frame(send) }
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: nobody else has a reference to it.
        unsafe { (*FRAMES.0.get()).write(bytes, send) }
    }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    defmt::error!("panicked");
    processor::exit(2)
}
