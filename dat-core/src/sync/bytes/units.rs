//! Single bytes, as atomics of the language: for targets without assembly here, and for Miri.

use core::sync::atomic::{AtomicU8, Ordering};

/// Whether units may be at any address.
pub(super) const ANYWHERE: bool = true;
/// The largest unit.
pub(super) const LARGEST: usize = 1;
/// The size from which on blocks are moved: never.
pub(super) const BLOCK: usize = usize::MAX;

/// Moves one byte; `FROM` and `TO` say which sides are shared.
///
/// # Safety
/// Both sides are valid for a byte.
#[inline]
#[expect(unsafe_code)]
pub(super) unsafe fn move_unit<const FROM: bool, const TO: bool>(
    from: *const u8,
    to: *mut u8,
    _unit: usize,
) {
    // SAFETY: promised by the caller; a byte is always aligned, and who races for a shared one does so by byte atomics.
    unsafe {
        let byte = if FROM {
            AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed)
        } else {
            from.read()
        };
        if TO {
            AtomicU8::from_ptr(to).store(byte, Ordering::Relaxed);
        } else {
            to.write(byte);
        }
    }
}

/// Moves no blocks.
///
/// # Safety
/// Asks for nothing.
#[expect(unsafe_code)]
pub(super) unsafe fn move_blocks(_from: *const u8, _to: *mut u8, _left: usize) -> usize {
    0
}
