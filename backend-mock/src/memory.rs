//! Registered memory, and the copies between its pieces. All of the crate's `unsafe` is here, but for its promise as a
//! backend.
//!
//! # Why this is sound
//!
//! - A [`Memory`] is made from a [`Registration`], whose owner promised that the range stays accessible until
//!   `deregister` returns (or the adapter is closed, which deregisters everything). The fabric drops the `Memory`, under
//!   the lock that every copy holds, before `deregister` returns; a [`Span`] borrows from it and cannot outlive it.
//! - A `Span` lies within its `Memory`: it is only made by checked arithmetic, and only gets smaller.
//! - The consumer may look at and change its memory while the device does. The copies are therefore no Rust accesses of
//!   plain memory: on x86-64 they are one `rep movsb` in assembly, whose effect is that of relaxed atomic byte accesses
//!   in some order; elsewhere (and under Miri) they are relaxed atomic byte accesses in Rust. No reference to registered
//!   memory is ever made.

use core::marker::PhantomData;

use dat_core::backend::Registration;

/// A registered range.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pointer is only used for the copies below, which may race with anyone (see the module documentation), and
// the promise of the registration holds for the process, not for one thread.
#[expect(unsafe_code, reason = "the fabric is shared between threads")]
unsafe impl Send for Memory {}

/// A piece of a registered range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    base: *mut u8,
    length: usize,
    memory: PhantomData<&'a Memory>,
}

impl Memory {
    /// The memory of a registration.
    pub(crate) fn registered(registration: &Registration) -> Self {
        Self {
            base: registration.base(),
            length: registration.length(),
        }
    }

    /// Its first byte, as the consumer addresses it.
    pub(crate) fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.length as u64
    }

    /// The piece at this address, or `None` if it does not lie within.
    pub(crate) fn span(&self, address: u64, length: u64) -> Option<Span<'_>> {
        let offset = usize::try_from(address.checked_sub(self.address())?).ok()?;
        self.whole().part(offset, usize::try_from(length).ok()?)
    }

    fn whole(&self) -> Span<'_> {
        Span {
            base: self.base,
            length: self.length,
            memory: PhantomData,
        }
    }
}

impl<'a> Span<'a> {
    /// Its length in bytes.
    pub(crate) fn len(self) -> usize {
        self.length
    }

    /// A piece of the piece, or `None` if it does not lie within.
    pub(crate) fn part(self, offset: usize, length: usize) -> Option<Span<'a>> {
        if offset > self.length || length > self.length - offset {
            return None;
        }
        Some(Span {
            base: self.base.wrapping_add(offset),
            length,
            memory: PhantomData,
        })
    }

    /// Copies as much of `source` as fits to the start of this piece; the two may overlap.
    pub(crate) fn copy_from(self, source: Span<'_>) {
        copy(source.base, self.base, self.length.min(source.length));
    }

    /// Copies as much of `source` as fits to the start of this piece.
    pub(crate) fn write(self, source: &[u8]) {
        copy(
            source.as_ptr().cast_mut(),
            self.base,
            self.length.min(source.len()),
        );
    }

    /// Copies as much of the start of this piece as fits.
    pub(crate) fn read(self, destination: &mut [u8]) {
        copy(
            self.base,
            destination.as_mut_ptr(),
            self.length.min(destination.len()),
        );
    }
}

/// Copies bytes as a device does, from a span or slice to a span or slice.
///
/// Private: both callers' ends are spans or slices of at least `length` bytes.
fn copy(source: *mut u8, destination: *mut u8, length: usize) {
    let distance = destination.addr().wrapping_sub(source.addr());
    if distance < length {
        // The destination begins inside the source: from the end, or bytes would be overwritten before they are read.
        copy_backwards(source, destination, length);
    } else {
        copy_forwards(source, destination, length);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "device access to registered memory")]
fn copy_forwards(source: *mut u8, destination: *mut u8, length: usize) {
    // SAFETY: both ranges are accessible for `length` bytes (module documentation; only called by `copy`). The direction
    // flag is clear at the start of an assembly block, and `rep movsb` leaves the flags alone.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") source => _,
            inout("rdi") destination => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn copy_forwards(source: *mut u8, destination: *mut u8, length: usize) {
    for offset in 0..length {
        copy_byte(
            source.wrapping_add(offset),
            destination.wrapping_add(offset),
        );
    }
}

fn copy_backwards(source: *mut u8, destination: *mut u8, length: usize) {
    for offset in (0..length).rev() {
        copy_byte(
            source.wrapping_add(offset),
            destination.wrapping_add(offset),
        );
    }
}

#[expect(unsafe_code, reason = "device access to registered memory")]
fn copy_byte(source: *mut u8, destination: *mut u8) {
    use core::sync::atomic::{AtomicU8, Ordering};
    // SAFETY: both bytes are accessible (module documentation), and a byte is always aligned. Whoever else uses them at
    // the same time does so through atomics or from outside of the language.
    unsafe {
        let byte = AtomicU8::from_ptr(source).load(Ordering::Relaxed);
        AtomicU8::from_ptr(destination).store(byte, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::backend::DomainKey;
    use dat_core::flags::MemoryPrivileges;
    use dat_core::memory::Region;

    #[expect(unsafe_code, reason = "memory of a test, on its stack")]
    fn memory(bytes: &mut [u8]) -> Memory {
        // SAFETY: the tests use the memory before the bytes go, and look at them in between only.
        let region = unsafe { Region::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
        let privileges = MemoryPrivileges::ALL;
        Memory::registered(&Registration::new(DomainKey(0), &region, privileges))
    }

    /// Spec: EPW-41, LSW-30
    #[test]
    fn spans_stay_inside() {
        let mut bytes = [0u8; 16];
        let memory = memory(&mut bytes);
        let start = memory.address();
        assert_eq!(memory.span(start, 16).map(Span::len), Some(16));
        assert_eq!(memory.span(start + 16, 0).map(Span::len), Some(0));
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
                memory.whole().read(&mut now);
                assert_eq!(now, expected, "{length} bytes to {to}");
            }
        }
    }

    #[test]
    fn slices_in_and_out() {
        let mut bytes = [0u8; 8];
        let memory = memory(&mut bytes);
        memory.whole().write(&[1, 2, 3]);
        memory.whole().part(6, 2).unwrap().write(&[7, 8, 9]);
        let mut out = [0; 10];
        memory.whole().read(&mut out);
        assert_eq!(out, [1, 2, 3, 0, 0, 0, 7, 8, 0, 0]);
    }
}
