//! The critical section of the image, which counts the instructions with interrupts masked.
#![expect(
    unsafe_code,
    reason = "implements the critical section of a single processor; only in this module"
)]

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::interrupt;
use cortex_m::register::primask;
use critical_section::RawRestoreState;

use crate::clock;

struct Counts {
    /// Timer's value at the start of the outermost section.
    begun: AtomicU32,
    /// Instructions of the longest section since `start`.
    longest: AtomicU32,
    /// Commands to the device since `start` that were given in a section.
    commands: AtomicU32,
}

/// Not in the printed sizes, where it is found by its name: the compiler must not split it.
#[used]
static COUNTS: Counts = Counts {
    begun: AtomicU32::new(0),
    longest: AtomicU32::new(0),
    commands: AtomicU32::new(0),
};

struct Section;

critical_section::set_impl!(Section);

// SAFETY: no other context of the single processor runs while interrupts are masked, and no context
// unmasks them before the outermost section ends.
unsafe impl critical_section::Impl for Section {
    unsafe fn acquire() -> RawRestoreState {
        let is_outermost = primask::read().is_active();
        interrupt::disable();
        if is_outermost {
            COUNTS.begun.store(clock::now(), Ordering::Relaxed);
        }
        is_outermost
    }

    unsafe fn release(is_outermost: RawRestoreState) {
        if !is_outermost {
            return;
        }
        let length = clock::between(COUNTS.begun.load(Ordering::Relaxed), clock::now());
        COUNTS.longest.store(
            length.max(COUNTS.longest.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        // SAFETY: interrupts were enabled before the outermost section.
        unsafe { interrupt::enable() }
    }
}

/// Forgets the sections so far.
#[inline(never)]
pub(crate) fn start() {
    COUNTS.longest.store(0, Ordering::Relaxed);
    COUNTS.commands.store(0, Ordering::Relaxed);
}

/// Returns the instructions of the longest section, and the commands given in sections.
pub(crate) fn end() -> (u32, u32) {
    let Counts {
        longest, commands, ..
    } = &COUNTS;
    (
        longest.load(Ordering::Relaxed),
        commands.load(Ordering::Relaxed),
    )
}

/// Counts a command to the device if interrupts are masked.
#[inline(never)]
pub(crate) fn on_command() {
    if primask::read().is_inactive() {
        COUNTS.commands.store(
            COUNTS.commands.load(Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
    }
}
