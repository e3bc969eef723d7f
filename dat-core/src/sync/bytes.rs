//! Copies between plain memory and memory that a device may change at any moment.

use core::sync::atomic::AtomicU8;

/// Copies the start of `from` into shared memory, as much as fits; returns the number of bytes.
///
/// Each byte is stored as if by a relaxed atomic store, in no particular order.
pub fn store_bytes(memory: &[AtomicU8], from: &[u8]) -> usize {
    let length = memory.len().min(from.len());
    store(memory, from, length);
    length
}

/// Copies the start of shared memory into `into`, as much as fits; returns the number of bytes.
///
/// Each byte is loaded as if by a relaxed atomic load, in no particular order.
pub fn load_bytes(memory: &[AtomicU8], into: &mut [u8]) -> usize {
    let length = memory.len().min(into.len());
    load(memory, into, length);
    length
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn store(memory: &[AtomicU8], from: &[u8], _: usize) {
    for (place, byte) in memory.iter().zip(from) {
        place.store(*byte, core::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn load(memory: &[AtomicU8], into: &mut [u8], _: usize) {
    for (place, byte) in memory.iter().zip(into) {
        *byte = place.load(core::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store(memory: &[AtomicU8], from: &[u8], length: usize) {
    move_bytes(
        from.as_ptr(),
        memory.as_ptr().cast::<u8>().cast_mut(),
        length,
    );
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn load(memory: &[AtomicU8], into: &mut [u8], length: usize) {
    move_bytes(memory.as_ptr().cast(), into.as_mut_ptr(), length);
}

/// The processor's own block move: it touches bytes as relaxed atomic accesses do, at the speed of a plain copy.
///
/// Private: its callers give pointers from slices of at least `length` bytes, the destination of one that may be written.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code)]
// UNSAFETY: the language has no bulk copy for atomics.
fn move_bytes(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: both ranges are valid for `length` bytes, as said above; atomics may be written through a shared reference, and
    // the other slice is borrowed for the time of the call, exclusively if it is the destination. An assembly block is
    // entered with the direction flag clear, and the instruction changes no flag and no memory but the destination.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn bytes_go_in_and_come_out_as_far_as_they_fit() {
        let memory: [AtomicU8; 8] = core::array::from_fn(|_| AtomicU8::new(0xEE));
        assert_eq!(store_bytes(&memory, &[1, 2, 3]), 3);
        assert_eq!(store_bytes(&memory[6..], &[7, 8, 9]), 2);
        assert_eq!(store_bytes(&memory[..0], &[9]), 0);
        let mut out = [0; 10];
        assert_eq!(load_bytes(&memory, &mut out), 8);
        assert_eq!(out, [1, 2, 3, 0xEE, 0xEE, 0xEE, 7, 8, 0, 0]);
        let mut short = [0; 2];
        assert_eq!(load_bytes(&memory[1..], &mut short), 2);
        assert_eq!(short, [2, 3]);
        assert_eq!(memory[7].load(Ordering::Relaxed), 8);
    }
}
