//! Instructions, by the timer of the processor.
//!
//! Under `-icount shift=6` QEMU lets 64 ns pass with every instruction, and the timer of its machine counts 40 ns at a time.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// The most that the timer counts to.
const MOST: u32 = 0x00FF_FFFF;

/// Lets the timer run.
pub(crate) fn start() {
    if let Some(mut processor) = cortex_m::Peripherals::take() {
        processor.SYST.set_clock_source(SystClkSource::Core);
        processor.SYST.set_reload(MOST);
        processor.SYST.clear_current();
        processor.SYST.enable_counter();
    }
}

/// Where the timer is. It counts down.
#[inline(never)]
pub(crate) fn now() -> u32 {
    SYST::get_current()
}

/// Instructions between two looks at the timer, the looks included; no more than a million.
pub(crate) fn between(before: u32, after: u32) -> u32 {
    (before.wrapping_sub(after) & MOST) * 5 / 8
}
