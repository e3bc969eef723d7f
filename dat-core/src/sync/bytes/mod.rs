//! Copies to, from and between memory that a device or peer may change.
//!
//! # Why this is sound, and why it is assembly
//! All accesses to shared memory behave like relaxed atomic accesses of single bytes, in no
//! particular order, each byte once. Other users of the memory access it by byte atomics too, or
//! from outside of the language.
//!
//! Faster copies need wider accesses. In Rust these would be undefined even as atomics, since
//! atomic accesses of different sizes that overlap must not race. Seen from outside, an assembly
//! block may do anything that a sequence of operations of the language may do. A load or a store of
//! 16 bytes is 16 relaxed ones of a byte, between which no other change was observed. So the wide
//! accesses are in assembly (`units`). On targets without assembly here, and under Miri, they are
//! byte atomics in Rust.
//!
//! Each byte is loaded and stored once. A block copy whose tail overlaps the previous block could
//! overwrite bytes that a peer or the consumer stored there in between.

#[cfg_attr(
    all(
        any(
            target_arch = "x86_64",
            all(target_arch = "x86", target_feature = "sse2")
        ),
        not(miri)
    ),
    path = "units_x86.rs"
)]
#[cfg_attr(all(target_arch = "aarch64", not(miri)), path = "units_aarch64.rs")]
#[cfg_attr(
    all(
        any(target_arch = "arm", target_arch = "riscv32", target_arch = "riscv64"),
        not(miri)
    ),
    path = "units_word.rs"
)]
mod units;

#[cfg(test)]
mod tests;

use core::sync::atomic::AtomicU8;

/// Copies the start of `from` into shared memory; returns the number of bytes that fit.
///
/// Each byte is stored as if by a relaxed atomic store, in no particular order.
pub fn store_bytes(memory: &[AtomicU8], from: &[u8]) -> usize {
    let length = memory.len().min(from.len());
    let to = memory.as_ptr().cast::<u8>().cast_mut();
    #[expect(unsafe_code)]
    // SAFETY: both slices have at least `length` bytes; a shared reference permits writes to
    // atomics.
    unsafe {
        copy_to_shared(from.as_ptr(), to, length);
    }
    length
}

/// Copies the start of shared memory into `into`; returns the number of bytes that fit.
///
/// Each byte is loaded as if by a relaxed atomic load, in no particular order.
pub fn load_bytes(memory: &[AtomicU8], into: &mut [u8]) -> usize {
    let length = memory.len().min(into.len());
    #[expect(unsafe_code)]
    // SAFETY: both slices have at least `length` bytes, and `into` is borrowed exclusively.
    unsafe {
        copy_from_shared(memory.as_ptr().cast(), into.as_mut_ptr(), length);
    }
    length
}

/// Copies plain memory to shared memory; for software backends, which have its address.
///
/// # Safety
/// - `from` is valid for reads of `length` bytes, which nothing changes during the call.
/// - `to` is valid for atomic writes of `length` bytes.
/// - The two ranges do not overlap.
/// - During the call, others access the range at `to` only by byte atomics or from outside of the
///   language.
#[expect(unsafe_code)]
// UNSAFETY: this function gets registered memory by address, and cannot check that it is still
// registered.
pub unsafe fn copy_to_shared(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { forwards::<false, true>(from, to, length) }
}

/// Copies shared memory to plain memory; for software backends, which have its address.
///
/// # Safety
/// - `from` is valid for atomic reads of `length` bytes.
/// - `to` is valid for writes of `length` bytes, which nothing else accesses during the call.
/// - The two ranges do not overlap.
/// - During the call, others access the range at `from` only by byte atomics or from outside of the
///   language.
#[expect(unsafe_code)]
// UNSAFETY: as `copy_to_shared`.
pub unsafe fn copy_from_shared(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { forwards::<true, false>(from, to, length) }
}

/// Copies shared memory to shared memory; for software backends, which have both addresses.
///
/// The ranges may overlap; `to` gets the earlier contents of `from`.
///
/// # Safety
/// - `from` is valid for atomic reads of `length` bytes, and `to` for atomic writes of them.
/// - During the call, others access both ranges only by byte atomics or from outside of the
///   language.
#[expect(unsafe_code)]
// UNSAFETY: as `copy_to_shared`.
pub unsafe fn copy_shared(from: *const u8, to: *mut u8, length: usize) {
    let distance = to.addr().wrapping_sub(from.addr());
    if distance >= length {
        // SAFETY: promised by the caller; if the ranges overlap, the destination starts first.
        unsafe { forwards::<true, true>(from, to, length) }
        return;
    }
    if distance == 0 {
        return;
    }
    // The destination starts inside the source. Copies chunks that do not overlap, the last one
    // first, so that no byte is overwritten before it is read.
    let mut left = length;
    while left > 0 {
        let count = distance.min(left);
        left = left.wrapping_sub(count);
        // SAFETY: `left + count` is at most `length`, and `to` is at least `count` above `from`.
        unsafe { forwards::<true, true>(from.wrapping_add(left), to.wrapping_add(left), count) }
    }
}

/// Copies bytes in ascending order; `FROM` and `TO` are true for sides that are shared.
///
/// # Safety
/// As for the callers. If the ranges overlap, `to` is not above `from`.
#[expect(unsafe_code)]
unsafe fn forwards<const FROM: bool, const TO: bool>(
    mut from: *const u8,
    mut to: *mut u8,
    length: usize,
) {
    let mut left = length;
    // Some processors need units at multiples of their sizes; on all others this is faster for long
    // copies.
    let align = !units::ANYWHERE || length >= units::BLOCK.saturating_mul(32);
    while left > 0 {
        let mut unit = units::LARGEST;
        if align {
            let source = if units::ANYWHERE { 0 } else { from.addr() };
            let bits = to.addr() | source | unit;
            unit = bits & bits.wrapping_neg();
        }
        let count = if unit == units::LARGEST && left >= units::BLOCK {
            // SAFETY: both sides have at least `left` bytes, at multiples of the largest unit if
            // the target needs that. A block is read before it is written, as a unit is, so no
            // unread byte is overwritten.
            unsafe { units::move_blocks(from, to, left) }
        } else {
            while unit > left {
                unit >>= 1;
            }
            // SAFETY: as above, and `unit` is a power of two of at most `left` and `LARGEST`.
            unsafe { units::move_unit::<FROM, TO>(from, to, unit) };
            unit
        };
        from = from.wrapping_add(count);
        to = to.wrapping_add(count);
        left = left.wrapping_sub(count);
    }
}
