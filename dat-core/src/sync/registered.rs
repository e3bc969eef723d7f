//! Registered memory, and copies between its pieces, for backends that move data by software.
//!
//! # Why this is sound
//!
//! - A [`RegisteredMemory`] is made from a [`Registration`]. The registration's owner promised that
//!   the range stays accessible until `deregister` returns, or until the backend is dropped, which
//!   deregisters everything. The backend drops the `RegisteredMemory` before. A [`RegisteredSpan`]
//!   borrows from it and cannot outlive it.
//! - A span lies within its memory: only checked arithmetic makes one, and a part is never larger
//!   than its span.
//! - The consumer may read and change its memory while the backend does. So the copies act as
//!   relaxed atomic byte accesses (`bytes`). No reference to registered memory is ever made.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU8;

use super::{copy_from_shared, copy_shared, copy_to_shared};
use crate::backend::Registration;

/// A registered range of memory.
///
/// Drop it before [`deregister`](crate::backend::Backend::deregister) returns.
#[derive(Debug)]
pub struct RegisteredMemory {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pointer is only used for the copies below, which may race with any access (see the
// module documentation). The promise of the registration holds for the process, not for one thread.
#[expect(unsafe_code, reason = "adapters are shared between threads")]
unsafe impl Send for RegisteredMemory {}

/// A piece of a registered range.
#[derive(Clone, Copy, Debug)]
pub struct RegisteredSpan<'a> {
    base: *mut u8,
    length: usize,
    memory: PhantomData<&'a RegisteredMemory>,
}

impl RegisteredMemory {
    /// Returns the memory of a registration.
    ///
    /// # Safety
    /// The backend drops it, under a lock that every copy holds, before its
    /// [`deregister`](crate::backend::Backend::deregister) of the region returns, and before it is
    /// dropped itself.
    #[expect(unsafe_code)]
    // UNSAFETY: the registration's owner reuses its memory after deregistration.
    pub unsafe fn new(registration: &Registration) -> Self {
        Self {
            base: registration.base(),
            length: registration.length(),
        }
    }

    /// Returns the address of its first byte, as the consumer uses it.
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Returns the piece at this address; `None` if it does not lie within.
    pub fn span(&self, address: u64, length: u64) -> Option<RegisteredSpan<'_>> {
        let offset = usize::try_from(address.checked_sub(self.address())?).ok()?;
        self.all().part(offset, usize::try_from(length).ok()?)
    }

    fn all(&self) -> RegisteredSpan<'_> {
        RegisteredSpan {
            base: self.base,
            length: self.length,
            memory: PhantomData,
        }
    }
}

impl<'a> RegisteredSpan<'a> {
    /// Returns its length in bytes.
    pub fn length(self) -> usize {
        self.length
    }

    /// Returns a part of the piece; `None` if it does not lie within.
    pub fn part(self, offset: usize, length: usize) -> Option<RegisteredSpan<'a>> {
        if offset > self.length || length > self.length - offset {
            return None;
        }
        Some(RegisteredSpan {
            base: self.base.wrapping_add(offset),
            length,
            memory: PhantomData,
        })
    }

    /// Copies `source` to the start of this piece, as far as it fits.
    ///
    /// The two may overlap.
    #[expect(unsafe_code, reason = "device access to registered memory")]
    pub fn copy_from(self, source: RegisteredSpan<'_>) {
        let length = self.length.min(source.length);
        // SAFETY: both pieces have `length` bytes and are registered (module documentation).
        unsafe { copy_shared(source.base, self.base, length) }
    }

    /// Copies `source` to the start of this piece, as far as it fits.
    #[expect(unsafe_code, reason = "device access to registered memory")]
    pub fn write(self, source: &[u8]) {
        let length = self.length.min(source.len());
        // SAFETY: the piece has `length` bytes and is registered (module documentation). The slice
        // has `length` bytes too, and is no registered memory.
        unsafe { copy_to_shared(source.as_ptr(), self.base, length) }
    }

    /// Copies the start of this piece to `destination`, as far as it fits.
    #[expect(unsafe_code, reason = "device access to registered memory")]
    pub fn read(self, destination: &mut [u8]) {
        let length = self.length.min(destination.len());
        // SAFETY: as in `write`.
        unsafe { copy_from_shared(self.base, destination.as_mut_ptr(), length) }
    }

    /// Copies the start of this piece to shared memory; returns the number of bytes that fit.
    #[expect(unsafe_code, reason = "device access to registered memory")]
    pub fn store_to(self, memory: &[AtomicU8]) -> usize {
        let length = self.length.min(memory.len());
        let to = memory.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: the piece has `length` bytes and is registered (module documentation). The slice
        // has `length` bytes too, and a shared reference permits writes to atomics.
        unsafe { copy_shared(self.base, to, length) }
        length
    }

    /// Copies the start of shared memory to this piece; returns the number of bytes that fit.
    #[expect(unsafe_code, reason = "device access to registered memory")]
    pub fn load_from(self, memory: &[AtomicU8]) -> usize {
        let length = self.length.min(memory.len());
        // SAFETY: as in `store_to`.
        unsafe { copy_shared(memory.as_ptr().cast(), self.base, length) }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DomainKey;
    use crate::flags::MemoryPrivileges;
    use crate::memory::Region;

    #[expect(unsafe_code, reason = "memory of a test, on its stack")]
    fn memory(bytes: &mut [u8]) -> RegisteredMemory {
        // SAFETY: the bytes outlive the memory in each test, which accesses them only through it
        // meanwhile.
        let region = unsafe { Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
        let privileges = MemoryPrivileges::ALL;
        // SAFETY: there is no backend that could deregister the memory.
        unsafe { RegisteredMemory::new(&Registration::new(DomainKey(0), &region, privileges)) }
    }

    /// Spec: EPW-41, LSW-30
    #[test]
    fn spans_stay_inside() {
        let mut bytes = [0u8; 16];
        let memory = memory(&mut bytes);
        let start = memory.address();
        assert_eq!(memory.span(start, 16).map(RegisteredSpan::length), Some(16));
        assert_eq!(
            memory.span(start + 16, 0).map(RegisteredSpan::length),
            Some(0)
        );
        assert!(memory.span(start, 17).is_none());
        assert!(memory.span(start - 1, 1).is_none());
        assert!(memory.span(start + 16, 1).is_none());
        assert!(memory.span(start + 1, u64::MAX).is_none());
        assert!(memory.span(u64::MAX, 2).is_none());
        let span = memory.span(start + 4, 8).unwrap();
        assert!(span.part(8, 0).is_some());
        assert!(span.part(8, 1).is_none());
        assert!(span.part(usize::MAX, 2).is_none());
    }

    #[test]
    fn copies_of_all_small_lengths_and_overlaps() {
        for length in 0..40 {
            for to in 0..24 {
                let mut bytes: [u8; 64] = core::array::from_fn(|index| index as u8);
                let mut expected = bytes;
                expected.copy_within(12..12 + length, to);
                let memory = memory(&mut bytes);
                let source = memory.span(memory.address() + 12, length as u64).unwrap();
                let destination = memory
                    .span(memory.address() + to as u64, length as u64)
                    .unwrap();
                destination.copy_from(source);
                let mut now = [0; 64];
                memory.all().read(&mut now);
                assert_eq!(now, expected, "{length} bytes to {to}");
            }
        }
    }

    #[test]
    fn slices_are_loaded_and_stored() {
        let mut bytes = [0u8; 8];
        let memory = memory(&mut bytes);
        memory.all().write(&[1, 2, 3]);
        memory.all().part(6, 2).unwrap().write(&[7, 8, 9]);
        let mut out = [0; 10];
        memory.all().read(&mut out);
        assert_eq!(out, [1, 2, 3, 0, 0, 0, 7, 8, 0, 0]);
    }
}
