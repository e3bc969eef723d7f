//! Copies by single byte atomics, for targets without assembly here and for Miri.

use core::sync::atomic::{AtomicU8, Ordering};

/// Set if a unit may be at any address.
pub(super) const ANYWHERE: bool = true;
/// Size of the largest unit, in bytes.
pub(super) const LARGEST: usize = 1;
/// Size from which on blocks are moved: never.
pub(super) const BLOCK: usize = usize::MAX;

/// Loads one byte that others may be writing.
///
/// # Safety
/// `from` is valid for reads of a byte, which others write only by byte atomics.
#[inline]
#[expect(unsafe_code)]
unsafe fn load(from: *const u8) -> u8 {
    #[cfg(miri)]
    // SAFETY: promised by the caller. The compiler's intrinsic takes the pointer, so no reference
    // is made.
    unsafe {
        use core::intrinsics::{AtomicOrdering, atomic_load};
        atomic_load::<u8, { AtomicOrdering::Relaxed }>(from)
    }
    #[cfg(not(miri))]
    // SAFETY: promised by the caller. The memory may be borrowed or mapped for reading only, while
    // `from_ptr` needs a pointer that permits writes: the language has no other atomic load. The
    // reference lives for one load, and nothing is stored by it. The compiler relies on nothing
    // that a borrow for reading breaks: a reference to interior mutability is neither `noalias` nor
    // `readonly`. It adds no store: a load of a byte is one instruction on every target.
    unsafe {
        AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed)
    }
}

/// Moves one byte; `FROM` and `TO` are true for sides that are shared.
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
    // SAFETY: promised by the caller; a byte is always aligned, and others access a shared one by
    // byte atomics. A byte that is stored to is valid for writes.
    unsafe {
        let byte = if FROM { load(from) } else { from.read() };
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
/// No requirements.
#[expect(unsafe_code)]
pub(super) unsafe fn move_blocks(_from: *const u8, _to: *mut u8, _left: usize) -> usize {
    0
}
