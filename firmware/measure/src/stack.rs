//! How deep the stack gets in a call, by paint.
#![expect(
    unsafe_code,
    reason = "the stack below its pointer is nobody's; a room of its own"
)]

use core::ptr::{read_volatile, write_volatile};

/// What is painted, in words.
const WORDS: u32 = 4096;
/// Bytes left alone below the pointer, for the painter itself.
const GAP: u32 = 64;
const PAINT: u32 = 0xA5A5_5A5A;

/// Paints the stack below the pointer of the caller; where the paint begins.
#[inline(never)]
pub(crate) fn paint(pointer: u32) -> u32 {
    let top = (pointer & !7) - GAP;
    for place in (top - WORDS * 4..top).step_by(4) {
        // SAFETY: the stack grows downwards from the end of the memory, of which statics take a small part; what lies so far below its
        // pointer is memory that nothing is in. No interrupt comes, and this loop needs less than the gap.
        unsafe { write_volatile(place as *mut u32, PAINT) }
    }
    top
}

/// Bytes of stack that were used since it was painted, below who had it painted.
#[inline(never)]
pub(crate) fn used(top: u32) -> u32 {
    let bottom = top - WORDS * 4;
    // SAFETY: as above.
    let painted = |place: &u32| unsafe { read_volatile(*place as *const u32) } == PAINT;
    let untouched = (bottom..top).step_by(4).take_while(painted).count() as u32;
    top + GAP - (bottom + untouched * 4)
}
