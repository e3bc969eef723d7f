//! Windows of 32-bit registers, another module with `unsafe` code.

use core::fmt;
use core::ptr::NonNull;
use volatile::{VolatilePtr, access::ReadWrite};

/// Reads and writes registers of 32 bits that hold little-endian numbers.
pub trait RegisterWords: Clone {
    /// Reads the register at an offset that is a multiple of 4.
    ///
    /// Returns all ones outside the window.
    fn read(&self, offset: u32) -> u32;

    /// Writes the register; writes nothing outside the window.
    fn write(&self, offset: u32, value: u32);
}

/// Uncached 32-bit registers mapped into the address space; the driver borrows them.
///
/// Neither `Copy` nor `Clone`: the platform keeps the one value and controls each borrow.
///
/// ```compile_fail,E0382
/// fn keep_two(registers: backend_mmio::MappedWords) -> [backend_mmio::MappedWords; 2] {
///     [registers, registers]
/// }
/// ```
pub struct MappedWords {
    base: NonNull<u8>,
    length: u32,
}

// SAFETY: the value only holds an address; `new` requires that any thread may use the registers.
#[expect(unsafe_code)]
unsafe impl Send for MappedWords {}

// SAFETY: as for `Send`.
#[expect(unsafe_code)]
unsafe impl Sync for MappedWords {}

impl fmt::Debug for MappedWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes of registers", self.length)
    }
}

impl MappedWords {
    /// Takes a window of registers.
    ///
    /// # Safety
    /// `length` bytes at `base`, which is aligned to 4, stay mapped as long as any value derived
    /// from the result is used. Any thread may read and write any of them at any time. That harms
    /// no memory that a Rust reference points to, except by the device's accesses to memory that
    /// was shared with it. At most one driver at a time holds a reference to the registers.
    #[expect(unsafe_code)]
    // UNSAFETY: the function cannot check the mapping.
    pub const unsafe fn new(base: NonNull<u8>, length: u32) -> Self {
        Self { base, length }
    }

    #[inline]
    fn register(&self, offset: u32) -> Option<VolatilePtr<'_, u32, ReadWrite>> {
        let last = self.length.checked_sub(4)?;
        if offset > last || !offset.is_multiple_of(4) {
            return None;
        }
        #[expect(unsafe_code)]
        // SAFETY: the 4 bytes at this offset lie in the window, which is mapped by the contract of
        // `new`.
        let register = unsafe { self.base.byte_add(offset as usize) };
        #[expect(unsafe_code)]
        // SAFETY: the register is mapped, aligned to 4, and may be read and written.
        let register = unsafe { VolatilePtr::new(register.cast::<u32>()) };
        Some(register)
    }
}

impl RegisterWords for &MappedWords {
    #[inline]
    fn read(&self, offset: u32) -> u32 {
        self.register(offset)
            .map_or(u32::MAX, |register| u32::from_le(register.read()))
    }

    #[inline]
    fn write(&self, offset: u32, value: u32) {
        if let Some(register) = self.register(offset) {
            register.write(value.to_le());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code)]
    fn words_stay_within_the_window() {
        let mut window = [0_u32; 4];
        let base = NonNull::new(window.as_mut_ptr().cast::<u8>()).expect("an address");
        // SAFETY: the window covers three of the four words, which only this test uses.
        let registers = &unsafe { MappedWords::new(base, 12) };
        registers.write(8, 0x0102_0304);
        assert_eq!(registers.read(8), 0x0102_0304);
        for outside in [2, 9, 12, u32::MAX - 3] {
            registers.write(outside, u32::MAX);
            assert_eq!(registers.read(outside), u32::MAX);
        }
        assert_eq!(window[2].to_ne_bytes(), 0x0102_0304_u32.to_le_bytes());
        assert_eq!((window[0], window[1], window[3]), (0, 0, 0));
    }
}
