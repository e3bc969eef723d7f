//! Copies to, from and between memory that a device or a peer may change at any moment.
//!
//! # Why this is sound, and why it is assembly
//! Shared memory is only ever accessed as if by relaxed atomic accesses of single bytes, in no particular order, each byte
//! once; whoever else uses it does so through byte atomics too, or from outside of the language. To go faster than a byte at
//! a time takes wider accesses, and in Rust these would be undefined even as atomics: atomic accesses of different sizes
//! that overlap must not race. An assembly block may do whatever a chain of operations of the language may, seen from
//! outside: a load and a store of 16 bytes are 16 relaxed loads and stores of a byte between which nothing else happened to
//! be seen. So the wide accesses are in assembly (`units`); where there is none for the target, and under Miri, they are byte
//! atomics in Rust.
//!
//! Each byte is loaded and stored once: a tail that overlapped the part before it, as block copies like to do, could
//! overwrite what a peer or the consumer stored there in between.

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

/// Copies the start of `from` into shared memory, as much as fits; returns the number of bytes.
///
/// Each byte is stored as if by a relaxed atomic store, in no particular order.
pub fn store_bytes(memory: &[AtomicU8], from: &[u8]) -> usize {
    let length = memory.len().min(from.len());
    let to = memory.as_ptr().cast::<u8>().cast_mut();
    #[expect(unsafe_code)]
    // SAFETY: both slices have at least `length` bytes; atomics may be written through a shared reference.
    unsafe {
        copy_to_shared(from.as_ptr(), to, length);
    }
    length
}

/// Copies the start of shared memory into `into`, as much as fits; returns the number of bytes.
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

/// Copies plain memory to shared memory, which backends in software know by its address.
///
/// # Safety
/// `from` is valid for reads of `length` bytes that nobody changes meanwhile, `to` for atomic writes of them, and the two do
/// not overlap. Others access what is at `to` meanwhile by byte atomics or from outside of the language, if at all.
#[expect(unsafe_code)]
// UNSAFETY: registered memory is known by its address, and whether it is still registered cannot be checked here.
pub unsafe fn copy_to_shared(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { forwards::<false, true>(from, to, length) }
}

/// Copies shared memory, which backends in software know by its address, to plain memory.
///
/// # Safety
/// `from` is valid for atomic reads of `length` bytes, `to` for writes of them that nobody else accesses meanwhile, and the
/// two do not overlap. Others access what is at `from` meanwhile by byte atomics or from outside of the language, if at all.
#[expect(unsafe_code)]
// UNSAFETY: as `copy_to_shared`.
pub unsafe fn copy_from_shared(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { forwards::<true, false>(from, to, length) }
}

/// Copies shared memory to shared memory, both of which backends in software know by address; the two may overlap, and `to`
/// gets what `from` held before.
///
/// # Safety
/// `from` is valid for atomic reads of `length` bytes and `to` for atomic writes of them. Others access both meanwhile by
/// byte atomics or from outside of the language, if at all.
#[expect(unsafe_code)]
// UNSAFETY: as `copy_to_shared`.
pub unsafe fn copy_shared(from: *const u8, to: *mut u8, length: usize) {
    let distance = to.addr().wrapping_sub(from.addr());
    if distance >= length {
        // SAFETY: promised by the caller; where the two overlap, the destination begins first.
        unsafe { forwards::<true, true>(from, to, length) }
        return;
    }
    if distance == 0 {
        return;
    }
    // The destination begins inside of the source: pieces that do not overlap, the last one first, or bytes would be
    // overwritten before they are read.
    let mut left = length;
    while left > 0 {
        let count = distance.min(left);
        left = left.wrapping_sub(count);
        // SAFETY: `left + count` is at most `length`, and `to` is at least `count` behind `from`.
        unsafe { forwards::<true, true>(from.wrapping_add(left), to.wrapping_add(left), count) }
    }
}

/// Copies from the first byte to the last. `FROM` and `TO` say which sides are shared.
///
/// # Safety
/// As of the callers. If the two overlap, `to` is not behind `from`.
#[expect(unsafe_code)]
unsafe fn forwards<const FROM: bool, const TO: bool>(
    mut from: *const u8,
    mut to: *mut u8,
    length: usize,
) {
    let mut left = length;
    // Units have to be at multiples of their sizes where the processor wants it so, and should if there are many.
    let align = !units::ANYWHERE || length >= units::BLOCK.saturating_mul(32);
    while left > 0 {
        let mut unit = units::LARGEST;
        if align {
            let source = if units::ANYWHERE { 0 } else { from.addr() };
            let bits = to.addr() | source | unit;
            unit = bits & bits.wrapping_neg();
        }
        let count = if unit == units::LARGEST && left >= units::BLOCK {
            // SAFETY: both sides have `left` bytes more, and are at multiples of the largest unit if need be. Blocks are
            // read before they are written, as units are, so that nothing unread is overwritten.
            unsafe { units::move_blocks(from, to, left) }
        } else {
            while unit > left {
                unit >>= 1;
            }
            // SAFETY: the same, and `unit` is a power of two that is at most `left` and `LARGEST`.
            unsafe { units::move_unit::<FROM, TO>(from, to, unit) };
            unit
        };
        from = from.wrapping_add(count);
        to = to.wrapping_add(count);
        left = left.wrapping_sub(count);
    }
}
