//! Log, as frames over the serial line; a panic ends the image.
#![expect(
    unsafe_code,
    reason = "one encoder for the whole image; only in this module"
)]

use core::cell::UnsafeCell;
use core::panic::PanicInfo;

use crate::processor;

/// Encoder of the frames.
struct Frames(UnsafeCell<defmt::Encoder>);

// SAFETY: there is one processor, and there are no interrupts.
unsafe impl Sync for Frames {}

static FRAMES: Frames = Frames(UnsafeCell::new(defmt::Encoder::new()));

fn send(bytes: &[u8]) {
    bytes.iter().copied().for_each(processor::send);
}

#[defmt::global_logger]
struct Log;

// SAFETY: one processor without interrupts begins and ends frames, so they do not mix.
unsafe impl defmt::Logger for Log {
    fn acquire() {
        // SAFETY: there is no other reference to the encoder.
        unsafe { (*FRAMES.0.get()).start_frame(send) }
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: there is no other reference to the encoder.
        unsafe { (*FRAMES.0.get()).end_frame(send) }
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: there is no other reference to the encoder.
        unsafe { (*FRAMES.0.get()).write(bytes, send) }
    }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    defmt::error!("panicked");
    processor::exit(2)
}
