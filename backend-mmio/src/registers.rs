//! The register window. One of the two rooms with `unsafe`.

use core::ptr::NonNull;
use volatile::{VolatilePtr, access::WriteOnly};

/// Writes to registers, each of exactly the width that it says.
pub trait RegisterIo: Clone {
    /// Writes 8 bytes at an offset that is a multiple of 8, the most significant first; none outside of the window.
    fn write(&self, offset: u32, value: u64);

    /// Writes a block of 64 bytes from an offset on, in order, each word the most significant byte first: a descriptor, so that the device
    /// need not fetch it. The first word alone is the doorbell, and a window that takes no more may leave it at that.
    fn copy(&self, offset: u32, block: [u64; 8]) {
        let [doorbell, ..] = block;
        self.write(offset, doorbell);
    }
}

/// Registers that are mapped into the address space, uncached.
///
/// On a bus of 32 bits the write is two, the more significant half first; nobody else may write the same register in
/// between, so give each queue pair a doorbell of its own or let one thread post.
#[derive(Clone, Copy, Debug)]
pub struct MappedRegisters {
    base: NonNull<u8>,
    /// How many registers of 8 bytes there are.
    count: u32,
}

// SAFETY: it only stands for an address; `new` asks that registers may be written from any thread.
#[expect(unsafe_code)]
unsafe impl Send for MappedRegisters {}

impl MappedRegisters {
    /// Takes a register window.
    ///
    /// # Safety
    /// `length` bytes at `base`, which is aligned to 8, are mapped as long as anything made from this is used, and any of
    /// them may be written at any moment from any thread, without harm to memory that a Rust reference exists to.
    #[expect(unsafe_code)]
    // UNSAFETY: what is mapped where cannot be checked here.
    pub const unsafe fn new(base: NonNull<u8>, length: u32) -> Self {
        Self {
            base,
            count: length / 8,
        }
    }
}

impl RegisterIo for MappedRegisters {
    #[inline(always)]
    #[expect(unsafe_code)]
    fn write(&self, offset: u32, value: u64) {
        // The number of the register; more than there can be if the offset is no multiple of 8.
        if offset.rotate_right(3) >= self.count {
            return;
        }
        let value = value.to_be();
        // SAFETY: 8 bytes at this offset lie inside of the window, which `new` promised to be mapped.
        let register = unsafe { self.base.byte_add(offset as usize) };
        #[cfg(target_pointer_width = "64")]
        // SAFETY: the register is mapped, aligned to 8, and may be written.
        unsafe { VolatilePtr::new_restricted(WriteOnly, register.cast::<u64>()) }.write(value);
        #[cfg(not(target_pointer_width = "64"))]
        for (place, half) in halves(value).into_iter().enumerate() {
            // SAFETY: the same for either half of it.
            let register = unsafe { register.cast::<u32>().add(place) };
            // SAFETY: the half is mapped, aligned to 4, and may be written.
            unsafe { VolatilePtr::new_restricted(WriteOnly, register) }.write(half);
        }
    }

    fn copy(&self, offset: u32, block: [u64; 8]) {
        for (place, word) in (offset..).step_by(8).zip(block) {
            self.write(place, word);
        }
    }
}

/// The halves of 8 bytes as they lie in memory.
#[cfg(not(target_pointer_width = "64"))]
fn halves(value: u64) -> [u32; 2] {
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
    fn writes_stay_inside_of_the_window() {
        let mut window = [0_u64; 4];
        let base = NonNull::new(window.as_mut_ptr().cast::<u8>()).expect("an address");
        // SAFETY: three of the four words, which only this test uses.
        let registers = unsafe { MappedRegisters::new(base, 24) };
        registers.write(16, 0x0102_0304_0506_0708);
        for outside in [4, 20, 24, u32::MAX - 7] {
            registers.write(outside, u64::MAX);
        }
        assert_eq!(window[2].to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((window[0], window[1], window[3]), (0, 0, 0));
    }
}
