//! The register window of doorbells, one of the modules with `unsafe` code.

use core::ptr::NonNull;
use volatile::{VolatilePtr, access::WriteOnly};

/// Writes registers, each with exactly the stated width.
pub trait RegisterIo: Clone {
    /// Writes 8 bytes, most significant first, at an offset that is a multiple of 8.
    ///
    /// Writes nothing outside the window.
    fn write(&self, offset: u32, value: u64);

    /// Writes a descriptor block of 64 bytes in order, each word most significant byte first.
    ///
    /// The device then need not fetch the descriptor. The first word is the doorbell; a window that
    /// accepts no blocks may write only that word, as the default does.
    fn copy(&self, offset: u32, block: [u64; 8]) {
        let [doorbell, ..] = block;
        self.write(offset, doorbell);
    }
}

/// Uncached registers mapped into the address space.
///
/// On a 32-bit bus a write takes two accesses, the more significant half first. No other thread may
/// write the same register in between: give each queue pair its own doorbell, or post from one
/// thread.
#[derive(Clone, Copy, Debug)]
pub struct MappedRegisters {
    base: NonNull<u8>,
    /// Number of 8-byte registers.
    count: u32,
}

// SAFETY: the value only holds an address; `new` requires that any thread may write the registers.
#[expect(unsafe_code)]
unsafe impl Send for MappedRegisters {}

impl MappedRegisters {
    /// Takes a register window.
    ///
    /// # Safety
    /// `length` bytes at `base`, which is aligned to 8, stay mapped as long as any value derived
    /// from the result is used. Writing any of them at any time from any thread harms no memory
    /// that a Rust reference points to.
    #[expect(unsafe_code)]
    // UNSAFETY: the function cannot check the mapping.
    pub const unsafe fn new(base: NonNull<u8>, length: u32) -> Self {
        Self {
            base,
            count: length / 8,
        }
    }
}

impl RegisterIo for MappedRegisters {
    #[inline]
    #[expect(unsafe_code)]
    fn write(&self, offset: u32, value: u64) {
        // The register's index; exceeds any count if the offset is not a multiple of 8.
        if offset.rotate_right(3) >= self.count {
            return;
        }
        let value = value.to_be();
        // SAFETY: the 8 bytes at this offset lie in the window, which is mapped by the contract of
        // `new`.
        let register = unsafe { self.base.byte_add(offset as usize) };
        #[cfg(target_pointer_width = "64")]
        // SAFETY: the register is mapped, aligned to 8, and may be written.
        unsafe { VolatilePtr::new_restricted(WriteOnly, register.cast::<u64>()) }.write(value);
        #[cfg(not(target_pointer_width = "64"))]
        for (index, word) in split64(value).into_iter().enumerate() {
            // SAFETY: as above, for each half.
            let register = unsafe { register.cast::<u32>().add(index) };
            // SAFETY: the half is mapped, aligned to 4, and may be written.
            unsafe { VolatilePtr::new_restricted(WriteOnly, register) }.write(word);
        }
    }

    fn copy(&self, offset: u32, block: [u64; 8]) {
        for (index, word) in (offset..).step_by(8).zip(block) {
            self.write(index, word);
        }
    }
}

/// Returns the two 4-byte halves of a value in memory order.
#[cfg(not(target_pointer_width = "64"))]
fn split64(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    [
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code)]
    fn writes_stay_within_the_window() {
        let mut window = [0_u64; 4];
        let base = NonNull::new(window.as_mut_ptr().cast::<u8>()).expect("an address");
        // SAFETY: the window covers three of the four words, which only this test uses.
        let registers = unsafe { MappedRegisters::new(base, 24) };
        registers.write(16, 0x0102_0304_0506_0708);
        for outside in [4, 20, 24, u32::MAX - 7] {
            registers.write(outside, u64::MAX);
        }
        assert_eq!(window[2].to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((window[0], window[1], window[3]), (0, 0, 0));
    }
}
