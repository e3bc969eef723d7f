//! Memory that may be registered.

use core::sync::atomic::AtomicU8;

/// A contiguous range of memory that devices and peers may access once it is registered.
///
/// Making one from raw parts is the one unsafe step of the interface: everything later, posts
/// included, only ever reaches memory inside live registrations.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    length: usize,
}

impl Region {
    /// Takes memory for registration.
    ///
    /// # Safety
    /// From its first registration until the last one is undone (by `lmr_free` of each region made from it,
    /// directly or of such a region, or the close of the adapter, or the backend's `deregister`), the `length`
    /// bytes at `base` must stay allocated and readable, and as far as the privileges asked for in any of them
    /// allow, the device, the processor on its behalf, and connected peers may read and write them at any
    /// moment, so no Rust reference to them may be relied on in a way that such accesses break.
    #[expect(unsafe_code)]
    // UNSAFETY: the caller's promise about memory cannot be checked here.
    pub unsafe fn from_raw_parts(base: *mut u8, length: usize) -> Self {
        Self { base, length }
    }

    /// Takes memory that lives for ever and that everybody may change.
    pub fn from_static(memory: &'static [AtomicU8]) -> Self {
        Self {
            base: memory.as_ptr().cast_mut().cast(),
            length: memory.len(),
        }
    }

    /// Takes addresses for memory, for a test device that touches none.
    #[cfg(test)]
    pub(crate) fn pretend(address: usize, length: usize) -> Self {
        Self {
            base: core::ptr::without_provenance_mut(address),
            length,
        }
    }

    /// First byte.
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }
}
