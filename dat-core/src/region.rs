//! Memory to register.

use core::sync::atomic::AtomicU8;

/// A contiguous range of memory that devices and peers may access once it is registered.
///
/// Creating one from raw parts is the only unsafe step of the interface: all later calls, posts
/// included, reach only memory inside live registrations.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    length: usize,
}

impl Region {
    /// Creates a region from raw parts.
    ///
    /// # Safety
    /// The obligations hold from the first registration until the last one is undone. That is done
    /// by `lmr_free` of each region made from this memory, directly or from such a region. The
    /// close of the adapter and the backend's `deregister` do it too.
    /// - The `length` bytes at `base` must stay allocated and readable.
    /// - As far as the privileges of any of these registrations allow, the device, the processor on
    ///   its behalf, and connected peers may read and write the bytes at any moment. So no Rust
    ///   reference to them may be relied on in a way that such accesses break.
    #[expect(unsafe_code)]
    // UNSAFETY: the caller's promise about memory cannot be checked here.
    pub unsafe fn from_raw_parts(base: *mut u8, length: usize) -> Self {
        Self { base, length }
    }

    /// Creates a region from memory that lives forever and that anyone may change.
    pub fn from_static(memory: &'static [AtomicU8]) -> Self {
        Self {
            base: memory.as_ptr().cast_mut().cast(),
            length: memory.len(),
        }
    }

    /// Creates a region from plain addresses, for a test device that accesses no memory.
    #[cfg(test)]
    pub(crate) fn from_addresses(address: usize, length: usize) -> Self {
        Self {
            base: core::ptr::without_provenance_mut(address),
            length,
        }
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }
}
