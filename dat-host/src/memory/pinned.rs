//! Memory that stays in place: all of the crate's `unsafe` code.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// A value that owns memory at a fixed address.
///
/// Implemented for `Vec<u8>`, `Box<[u8]>` and [`Foreign`]. A region takes the value over and gives
/// it back; meanwhile the value is not touched.
///
/// # Safety
/// From the call of `memory` until the crate gives the value back or drops it:
/// 1. The range stays allocated, and its bytes are initialised.
/// 2. It is valid for reads and writes, also from other threads.
/// 3. Nothing else accesses it. A move of the value may count as an access, since the crate moves
///    no value whose memory is registered.
///
/// If the value is not dropped, the promise holds until the adapter is closed. That is so if a
/// region, window or operation was forgotten, or if the core refused to free the region.
#[expect(unsafe_code)]
// UNSAFETY: where a value has its memory cannot be checked.
pub unsafe trait Stable: Send + 'static {
    /// Returns the first byte and the number of bytes.
    fn memory(&mut self) -> (NonNull<u8>, usize);
}

#[expect(unsafe_code)]
// SAFETY: a vector's bytes are on the heap, initialised up to its length, and owned by it.
unsafe impl Stable for Vec<u8> {
    fn memory(&mut self) -> (NonNull<u8>, usize) {
        (NonNull::from(self.as_mut_slice()).cast(), self.len())
    }
}

#[expect(unsafe_code)]
// SAFETY: a boxed slice is on the heap, initialised, and owned by the box. A region does not move
// the box while it uses the memory.
unsafe impl Stable for Box<[u8]> {
    fn memory(&mut self) -> (NonNull<u8>, usize) {
        (NonNull::from(&mut **self).cast(), self.len())
    }
}

/// A value that owns bytes at a fixed address, which nobody writes.
///
/// Implemented for `Arc<[u8]>`, `Arc<Vec<u8>>`, `&'static [u8]`, and with the feature `bytes` for
/// `bytes::Bytes`. A [`ReadRegion`](crate::ReadRegion) takes the value over and gives it back;
/// meanwhile it only shares references to the value's bytes.
///
/// # Safety
/// From the call of `bytes` until the crate gives the value back or drops it:
/// 1. The slice stays at its address, also if it is no longer borrowed.
/// 2. Nothing writes its bytes, also not through other owners of the memory. A move of the value
///    may count as a write, since the crate moves no value whose memory is registered.
///
/// If the value is not dropped, the promise holds until the adapter is closed. That is so if a
/// region, window or operation was forgotten, or if the core refused to free the region.
#[expect(unsafe_code)]
// UNSAFETY: where a value has its memory cannot be checked.
pub unsafe trait StableRead: Send + Sync + 'static {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
}

#[expect(unsafe_code)]
// SAFETY: the bytes are on the heap. Others with a reference count cannot write them while the
// region has one, too.
unsafe impl StableRead for Arc<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[expect(unsafe_code)]
// SAFETY: the bytes are on the heap. Others with a reference count can neither write nor move the
// vector while the region has one, too.
unsafe impl StableRead for Arc<Vec<u8>> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[expect(unsafe_code)]
// SAFETY: the bytes are borrowed for ever, and so neither freed nor written.
unsafe impl StableRead for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[cfg(feature = "bytes")]
#[expect(unsafe_code)]
// SAFETY: the bytes are behind a pointer: on the heap, in a static, or in an owner that is boxed
// (`Bytes::from_owner`, whose slice may not move either, since `Bytes` keeps its address). Other
// handles to them only read while this one exists: `try_into_mut` fails for memory that is shared.
unsafe impl StableRead for bytes::Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Memory that the crate knows nothing of, such as a device's, with the value that keeps it.
///
/// ```
/// use dat_host::{Adapter, Foreign};
/// use std::ptr::NonNull;
///
/// # fn main() -> dat_host::Result<()> {
/// let zone = Adapter::open("mock://foreign")?.zone()?;
/// let memory = Box::leak(Box::new([0_u8; 64]));
/// // SAFETY: the bytes are leaked, and nothing else uses them.
/// let foreign = unsafe { Foreign::new((), NonNull::from(memory).cast(), 64) };
/// let region = zone.region(foreign)?;
/// # drop(region);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Foreign<O = ()> {
    base: NonNull<u8>,
    length: usize,
    owner: O,
}

#[expect(unsafe_code)]
// SAFETY: the creator allows accesses from all threads.
unsafe impl<O: Send> Send for Foreign<O> {}

impl<O> Foreign<O> {
    /// Creates a value for `length` bytes at `base`, which `owner` keeps; it may be `()`.
    ///
    /// # Safety
    /// The conditions of [`Stable`] hold until the value is dropped. If it is not dropped, they
    /// hold until the adapter is closed. That is so if a region, window or operation was forgotten,
    /// or if the core refused to free the region.
    #[expect(unsafe_code)]
    // UNSAFETY: a promise about memory cannot be checked.
    pub const unsafe fn new(owner: O, base: NonNull<u8>, length: usize) -> Self {
        Self {
            base,
            length,
            owner,
        }
    }

    /// Returns the owner of the memory.
    pub fn into_owner(self) -> O {
        self.owner
    }
}

#[expect(unsafe_code)]
// SAFETY: promised by the creator of the value.
unsafe impl<O: Send + 'static> Stable for Foreign<O> {
    fn memory(&mut self) -> (NonNull<u8>, usize) {
        (self.base, self.length)
    }
}

/// Bytes of a [`Stable`] value that is not touched, or a part of them.
///
/// At any time there is one owner: user code that has the region or buffer, an operation in flight,
/// or a window. The first one only calls `bytes` and `bytes_mut`, the second calls nothing, the
/// third only calls `atomics`. So no slice exists while a device or a peer may write.
///
/// Memory that nobody writes (`for_reads`) is registered without rights to write. User code,
/// operations and windows read it at the same time, and call only `bytes`.
#[derive(Debug)]
pub(crate) struct Pinned {
    base: NonNull<u8>,
    length: usize,
}

#[expect(unsafe_code)]
// SAFETY: it is the exclusive owner of its bytes, which any thread may access.
unsafe impl Send for Pinned {}
#[expect(unsafe_code)]
// SAFETY: a shared reference gives shared slices or atomics only.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self {
        base: NonNull::dangling(),
        length: 0,
    };

    /// Takes over the memory of a value, which the caller keeps and does not touch.
    pub(crate) fn of(value: &mut impl Stable) -> Self {
        let (base, length) = value.memory();
        Self { base, length }
    }

    /// Takes over bytes that nobody writes, for a region that lends only `bytes`.
    pub(crate) fn for_reads(value: &impl StableRead) -> Self {
        let bytes = value.bytes();
        Self {
            base: NonNull::from(bytes).cast(),
            length: bytes.len(),
        }
    }

    /// Returns the memory as the core registers it.
    ///
    /// The caller deregisters it before the value is touched.
    pub(crate) fn to_register(&self) -> dat_core::memory::Region {
        #[expect(unsafe_code)]
        // SAFETY: `Registered` keeps the value until the core has freed the region, or for ever if
        // it cannot. `rsm::Export`, the other caller, keeps it until the engine has destroyed the
        // segment, or until the engine is gone; it only calls `atomics`. While a device or a peer
        // may access the bytes, there is no reference to them: an operation in flight or a window
        // owns them, as said above. Or the registration has no rights to write, so slices stay
        // valid. An operation gives them back after its completion, after its endpoint or shared
        // queue is freed, or after the adapter is closed. From then on the device does not access
        // them (conditions 4 and 2 of `dat_core::backend::Backend`). A window gives them back after
        // its remote region is freed. From then on no peer accesses them (condition 1). A window of
        // a zone gives them back after its region is deregistered (condition 2).
        unsafe {
            dat_core::memory::Region::from_raw_parts(self.base.as_ptr(), self.length)
        }
    }

    /// Splits off the first bytes, or all if there are fewer.
    pub(crate) fn split_to(&mut self, length: usize) -> Self {
        let length = length.min(self.length);
        let first = Self {
            base: self.base,
            length,
        };
        #[expect(unsafe_code)]
        // SAFETY: the offset is at most the length of the range.
        let rest = unsafe { self.base.add(length) };
        self.base = rest;
        self.length -= length;
        first
    }

    pub(crate) fn address(&self) -> u64 {
        self.base.addr().get() as u64
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// Returns the bytes, for their owner.
    pub(crate) fn bytes(&self) -> &[u8] {
        #[expect(unsafe_code)]
        // SAFETY: the bytes are initialised and stay allocated; the owner is user code, so nothing
        // writes them while the slice is borrowed.
        unsafe {
            slice::from_raw_parts(self.base.as_ptr(), self.length)
        }
    }

    /// Returns the bytes, for their owner.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        #[expect(unsafe_code)]
        // SAFETY: as in `bytes`; the borrow is exclusive.
        unsafe {
            slice::from_raw_parts_mut(self.base.as_ptr(), self.length)
        }
    }

    /// Returns the bytes as atomics, for a window.
    pub(crate) fn atomics(&self) -> &[AtomicU8] {
        #[expect(unsafe_code)]
        // SAFETY: the bytes stay allocated and have the layout of atomics. A window has no slices
        // of them, and devices and peers access them only as atomics or from outside of the
        // language.
        unsafe {
            slice::from_raw_parts(self.base.as_ptr().cast(), self.length)
        }
    }
}
