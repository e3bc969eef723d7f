//! Stack use of a call, by painting.
#![expect(
    unsafe_code,
    reason = "reads and writes the unused stack below the stack pointer; only in this module"
)]

use core::ptr::{read_volatile, write_volatile};

/// Length of the painted range in words.
const WORDS: u32 = 4096;
/// Unpainted bytes below the stack pointer, for the painting function itself.
const GAP: u32 = 64;
const PAINT: u32 = 0xA5A5_5A5A;

/// Paints the stack below the caller's stack pointer; returns the start of the paint.
#[inline(never)]
pub(crate) fn paint(pointer: u32) -> u32 {
    let top = (pointer & !7) - GAP;
    for address in (top - WORDS * 4..top).step_by(4) {
        // SAFETY: the stack grows downwards from the end of memory, and statics take a small part
        // of memory. The range this far below the stack pointer is unused. There are no interrupts,
        // and this loop needs less than the gap.
        unsafe { write_volatile(address as *mut u32, PAINT) }
    }
    top
}

/// Returns the bytes of stack used since `paint`, below the pointer given to it.
#[inline(never)]
pub(crate) fn used(top: u32) -> u32 {
    let bottom = top - WORDS * 4;
    // SAFETY: as above.
    let painted = |address: &u32| unsafe { read_volatile(*address as *const u32) } == PAINT;
    let untouched = (bottom..top).step_by(4).take_while(painted).count() as u32;
    top + GAP - (bottom + untouched * 4)
}
