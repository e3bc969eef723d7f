//! Copies in units of up to 16 bytes, with SSE2 if the target has it.
//!
//! All the move instructions accept any address.

use core::arch::asm;

/// Set if a unit may be at any address.
pub(super) const ANYWHERE: bool = true;
/// Size of the largest unit, in bytes.
pub(super) const LARGEST: usize = 16;
/// Size from which on blocks are moved, in bytes.
pub(super) const BLOCK: usize = 64;
/// Size in bytes from which on `rep movsb` is as fast as the loop, or faster.
#[cfg(target_arch = "x86_64")]
const STRING: usize = 2048;

/// Moves a unit by one load and one store.
///
/// # Safety
/// Both sides are valid for `unit` bytes, which is a power of two and at most `LARGEST`.
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
            #[cfg(target_feature = "sse2")]
            16 => asm!(
                "movups {unit}, [{from}]",
                "movups [{to}], {unit}",
                from = in(reg) from, to = in(reg) to, unit = out(xmm_reg) _,
                options(nostack, preserves_flags)
            ),
            #[cfg(target_feature = "sse2")]
            8 => asm!(
                "movq {unit}, qword ptr [{from}]",
                "movq qword ptr [{to}], {unit}",
                from = in(reg) from, to = in(reg) to, unit = out(xmm_reg) _,
                options(nostack, preserves_flags)
            ),
            #[cfg(not(target_feature = "sse2"))]
            16 => asm!(
                "mov {a}, qword ptr [{from}]",
                "mov {b}, qword ptr [{from} + 8]",
                "mov qword ptr [{to}], {a}",
                "mov qword ptr [{to} + 8], {b}",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            ),
            #[cfg(not(target_feature = "sse2"))]
            8 => asm!(
                "mov {unit}, qword ptr [{from}]",
                "mov qword ptr [{to}], {unit}",
                from = in(reg) from, to = in(reg) to, unit = out(reg) _,
                options(nostack, preserves_flags)
            ),
            4 => asm!(
                "mov {unit:e}, dword ptr [{from}]",
                "mov dword ptr [{to}], {unit:e}",
                from = in(reg) from, to = in(reg) to, unit = out(reg) _,
                options(nostack, preserves_flags)
            ),
            2 => asm!(
                "mov {unit:x}, word ptr [{from}]",
                "mov word ptr [{to}], {unit:x}",
                from = in(reg) from, to = in(reg) to, unit = out(reg) _,
                options(nostack, preserves_flags)
            ),
            _ => asm!(
                "mov {unit}, byte ptr [{from}]",
                "mov byte ptr [{to}], {unit}",
                from = in(reg) from, to = in(reg) to, unit = out(reg_byte) _,
                options(nostack, preserves_flags)
            ),
        }
    }
}

/// Moves all whole blocks in ascending order; returns the byte count.
///
/// # Safety
/// Both sides are valid for `left` bytes, which is at least `BLOCK`. If they overlap, `to` is not
/// above `from`.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_blocks(from: *const u8, to: *mut u8, left: usize) -> usize {
    let blocks = left / BLOCK;
    #[cfg(target_arch = "x86_64")]
    // `rep movsb` needs both sides at the same offset in a cache line: otherwise it takes ten times
    // as long on some processors.
    if left >= STRING && (from.addr() ^ to.addr()).is_multiple_of(BLOCK) {
        // SAFETY: promised by the caller. The direction flag is clear at the start of an assembly
        // block, and the instruction changes no flag.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") left => _, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
        return left;
    }
    #[cfg(target_feature = "sse2")]
    // SAFETY: promised by the caller; the loop runs once per block, there is at least one block,
    // and a block is read before it is written.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {blocks}",
            "jnz 2b",
            from = inout(reg) from => _, to = inout(reg) to => _, blocks = inout(reg) blocks => _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack)
        );
    }
    #[cfg(not(target_feature = "sse2"))]
    // SAFETY: as above.
    unsafe {
        asm!(
            "2:",
            "mov {a}, qword ptr [{from}]",
            "mov {b}, qword ptr [{from} + 8]",
            "mov {c}, qword ptr [{from} + 16]",
            "mov {d}, qword ptr [{from} + 24]",
            "mov qword ptr [{to}], {a}",
            "mov qword ptr [{to} + 8], {b}",
            "mov qword ptr [{to} + 16], {c}",
            "mov qword ptr [{to} + 24], {d}",
            "add {from}, 32",
            "add {to}, 32",
            "dec {segments}",
            "jnz 2b",
            from = inout(reg) from => _, to = inout(reg) to => _,
            segments = inout(reg) blocks.wrapping_mul(2) => _,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            options(nostack)
        );
    }
    blocks.wrapping_mul(BLOCK)
}
