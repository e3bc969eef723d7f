//! Instruction counts by the processor's timer.
//!
//! Under `-icount shift=6` QEMU advances time by 64 ns per instruction. The machine's timer counts
//! steps of 40 ns.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// Largest value of the timer.
const MOST: u32 = 0x00FF_FFFF;

/// Starts the timer.
pub(crate) fn start() {
    if let Some(mut processor) = cortex_m::Peripherals::take() {
        processor.SYST.set_clock_source(SystClkSource::Core);
        processor.SYST.set_reload(MOST);
        processor.SYST.clear_current();
        processor.SYST.enable_counter();
    }
}

/// Returns the timer's value, which counts down.
#[inline(never)]
pub(crate) fn now() -> u32 {
    SYST::get_current()
}

/// Returns the number of instructions between two reads of the timer, the reads included.
///
/// At most 10 million: the timer has 24 bits.
pub(crate) fn between(before: u32, after: u32) -> u32 {
    (before.wrapping_sub(after) & MOST) * 5 / 8
}
