//! Copies in aligned units of up to a register: Arm and RISC-V.

use core::arch::asm;

/// Set if a unit may be at any address.
pub(super) const ANYWHERE: bool = false;
/// Size of the largest unit, in bytes: a register.
pub(super) const LARGEST: usize = size_of::<usize>();
/// Size from which on blocks are moved, in bytes.
pub(super) const BLOCK: usize = 4 * LARGEST;

/// Loads from `from` and stores to `to` by the given instructions.
#[cfg(target_arch = "arm")]
macro_rules! load_store {
    ($load:literal, $store:literal, $from:expr, $to:expr) => {
        asm!(
            concat!($load, " {unit}, [{from}]"),
            concat!($store, " {unit}, [{to}]"),
            from = in(reg) $from, to = in(reg) $to, unit = out(reg) _,
            options(nostack, preserves_flags)
        )
    };
}

/// Loads from `from` and stores to `to` by the given instructions.
#[cfg(not(target_arch = "arm"))]
macro_rules! load_store {
    ($load:literal, $store:literal, $from:expr, $to:expr) => {
        asm!(
            concat!($load, " {unit}, 0({from})"),
            concat!($store, " {unit}, 0({to})"),
            from = in(reg) $from, to = in(reg) $to, unit = out(reg) _,
            options(nostack, preserves_flags)
        )
    };
}

/// Moves a unit by one load and one store.
///
/// # Safety
/// Both sides are valid for and aligned to `unit` bytes, which is a power of two and at most
/// `LARGEST`.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_unit<const FROM: bool, const TO: bool>(
    from: *const u8,
    to: *mut u8,
    unit: usize,
) {
    // SAFETY: promised by the caller. The instructions touch no other memory, no flag and no stack.
    unsafe {
        #[cfg(target_arch = "arm")]
        match unit {
            4 => load_store!("ldr", "str", from, to),
            2 => load_store!("ldrh", "strh", from, to),
            _ => load_store!("ldrb", "strb", from, to),
        }
        #[cfg(not(target_arch = "arm"))]
        match unit {
            #[cfg(target_arch = "riscv64")]
            8 => load_store!("ld", "sd", from, to),
            4 => load_store!("lw", "sw", from, to),
            2 => load_store!("lh", "sh", from, to),
            _ => load_store!("lb", "sb", from, to),
        }
    }
}

/// Moves all whole blocks in ascending order; returns the byte count.
///
/// # Safety
/// Both sides are valid for `left` bytes, which is at least `BLOCK`, and aligned to `LARGEST`. If
/// they overlap, `to` is not above `from`.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_blocks(from: *const u8, to: *mut u8, left: usize) -> usize {
    let count = left & BLOCK.wrapping_neg();
    let mut at = 0;
    while at < count {
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        // SAFETY: promised by the caller; `at + BLOCK` is at most `left`, and a block is read
        // before it is written.
        unsafe { move_block(from, to) };
        at = at.wrapping_add(BLOCK);
    }
    count
}

/// Moves a block.
///
/// # Safety
/// Both sides are valid for `BLOCK` bytes and aligned to `LARGEST`.
#[inline]
#[expect(unsafe_code)]
unsafe fn move_block(from: *const u8, to: *mut u8) {
    // SAFETY: promised by the caller. The instructions touch no other memory, no flag and no stack.
    unsafe {
        #[cfg(target_arch = "arm")]
        asm!(
            "ldr {a}, [{from}]",
            "ldr {b}, [{from}, #4]",
            "ldr {c}, [{from}, #8]",
            "ldr {d}, [{from}, #12]",
            "str {a}, [{to}]",
            "str {b}, [{to}, #4]",
            "str {c}, [{to}, #8]",
            "str {d}, [{to}, #12]",
            from = in(reg) from, to = in(reg) to,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "riscv32")]
        asm!(
            "lw {a}, 0({from})",
            "lw {b}, 4({from})",
            "lw {c}, 8({from})",
            "lw {d}, 12({from})",
            "sw {a}, 0({to})",
            "sw {b}, 4({to})",
            "sw {c}, 8({to})",
            "sw {d}, 12({to})",
            from = in(reg) from, to = in(reg) to,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "riscv64")]
        asm!(
            "ld {a}, 0({from})",
            "ld {b}, 8({from})",
            "ld {c}, 16({from})",
            "ld {d}, 24({from})",
            "sd {a}, 0({to})",
            "sd {b}, 8({to})",
            "sd {c}, 16({to})",
            "sd {d}, 24({to})",
            from = in(reg) from, to = in(reg) to,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
}
