//! Copies in units of up to 16 bytes by pairs of general registers.
//!
//! They need no floating-point unit.

use core::arch::asm;

/// Set if a unit may be at any address.
///
/// Not without an operating system, which may have left the memory management unit off.
pub(super) const ANYWHERE: bool = !cfg!(target_os = "none");
/// Size of the largest unit, in bytes.
pub(super) const LARGEST: usize = 16;
/// Size from which on blocks are moved, in bytes.
pub(super) const BLOCK: usize = 64;

/// Moves a unit by one load and one store.
///
/// # Safety
/// Both sides are valid for `unit` bytes, which is a power of two and at most `LARGEST`, and
/// aligned to it unless `ANYWHERE`.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_unit<const FROM: bool, const TO: bool>(
    from: *const u8,
    to: *mut u8,
    unit: usize,
) {
    // SAFETY: promised by the caller. The instructions touch no other memory, no flag and no stack.
    unsafe {
        match unit {
            16 => asm!(
                "ldp {a}, {b}, [{from}]",
                "stp {a}, {b}, [{to}]",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            ),
            8 => asm!(
                "ldr {a}, [{from}]",
                "str {a}, [{to}]",
                from = in(reg) from, to = in(reg) to, a = out(reg) _,
                options(nostack, preserves_flags)
            ),
            4 => asm!(
                "ldr {a:w}, [{from}]",
                "str {a:w}, [{to}]",
                from = in(reg) from, to = in(reg) to, a = out(reg) _,
                options(nostack, preserves_flags)
            ),
            2 => asm!(
                "ldrh {a:w}, [{from}]",
                "strh {a:w}, [{to}]",
                from = in(reg) from, to = in(reg) to, a = out(reg) _,
                options(nostack, preserves_flags)
            ),
            _ => asm!(
                "ldrb {a:w}, [{from}]",
                "strb {a:w}, [{to}]",
                from = in(reg) from, to = in(reg) to, a = out(reg) _,
                options(nostack, preserves_flags)
            ),
        }
    }
}

/// Moves all whole blocks in ascending order; returns the byte count.
///
/// # Safety
/// Both sides are valid for `left` bytes, which is at least `BLOCK`, and aligned to `LARGEST`
/// unless `ANYWHERE`. If they overlap, `to` is not above `from`.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_blocks(from: *const u8, to: *mut u8, left: usize) -> usize {
    let blocks = left / BLOCK;
    // SAFETY: promised by the caller; the loop runs once per block, there is at least one block,
    // and a block is read before it is written.
    unsafe {
        asm!(
            "2:",
            "ldp {a}, {b}, [{from}]",
            "ldp {c}, {d}, [{from}, #16]",
            "ldp {e}, {f}, [{from}, #32]",
            "ldp {g}, {h}, [{from}, #48]",
            "stp {a}, {b}, [{to}]",
            "stp {c}, {d}, [{to}, #16]",
            "stp {e}, {f}, [{to}, #32]",
            "stp {g}, {h}, [{to}, #48]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "subs {blocks}, {blocks}, #1",
            "b.ne 2b",
            from = inout(reg) from => _, to = inout(reg) to => _, blocks = inout(reg) blocks => _,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
            options(nostack)
        );
    }
    blocks.wrapping_mul(BLOCK)
}
