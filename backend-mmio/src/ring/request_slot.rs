//! Slots for posted descriptors.

use core::sync::atomic::{AtomicU32, Ordering};

use dat_core::sync::Word64;

#[cfg(feature = "non-coherent")]
use super::maintenance::RANGES;

/// Slot for one posted descriptor.
///
/// Each block of a send queue and each slot of a receive queue has one.
#[derive(Debug)]
pub struct RequestSlot {
    token: Word64,
    /// Blocks of a request, or bytes of a receive.
    extent: AtomicU32,
    /// State in a shared queue (low 2 bits), and the next slot of the chain.
    location: AtomicU32,
    /// Buffers that the device may write, as address and length.
    #[cfg(feature = "non-coherent")]
    ranges: [(Word64, AtomicU32); RANGES as usize],
}

/// State of a slot of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In the chain of slots to post next.
    Free = 0,
    /// Held by the device.
    Posted = 1,
    /// Completed and not yet in the chain.
    Returned = 2,
}

impl RequestSlot {
    /// A slot with nothing posted.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        token: Word64::new(0),
        extent: AtomicU32::new(0),
        location: AtomicU32::new(Location::Free as u32),
        #[cfg(feature = "non-coherent")]
        ranges: [const { (Word64::new(0), AtomicU32::new(0)) }; RANGES as usize],
    };

    /// Records a buffer that the device may write.
    pub(super) fn put_range(&self, index: u32, address: u64, length: u32) {
        #[cfg(feature = "non-coherent")]
        if let Some((start, bytes)) = self.ranges.get(index as usize) {
            start.store(address);
            bytes.store(length, Ordering::Relaxed);
        }
        #[cfg(not(feature = "non-coherent"))]
        let _without_records = (self, index, address, length);
    }

    /// Returns the recorded buffers as address and length, and forgets them.
    pub(crate) fn take_ranges(&self) -> impl Iterator<Item = (u64, u32)> {
        #[cfg(feature = "non-coherent")]
        let ranges = self
            .ranges
            .iter()
            .map(|(start, bytes)| {
                let length = bytes.load(Ordering::Relaxed);
                bytes.store(0, Ordering::Relaxed);
                (start.load(), length)
            })
            .filter(|(_, length)| *length != 0);
        #[cfg(not(feature = "non-coherent"))]
        let ranges = core::iter::empty();
        ranges
    }

    /// Forgets the buffers of an earlier descriptor that was not posted.
    pub(crate) fn forget_ranges(&self) {
        self.take_ranges().for_each(drop);
    }

    #[inline]
    pub(crate) fn put(&self, token: u64, extent: u32) {
        self.token.store(token);
        self.extent.store(extent, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn token(&self) -> u64 {
        self.token.load()
    }

    #[inline]
    pub(crate) fn extent(&self) -> u32 {
        self.extent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_at(&self, location: Location) -> bool {
        self.location.load(Ordering::Acquire) & 3 == location as u32
    }

    /// Marks the slot as free and links it to the next slot of the chain.
    pub(crate) fn free_with_next(&self, next: u32) {
        let location = next << 2 | Location::Free as u32;
        self.location.store(location, Ordering::Relaxed);
    }

    /// Returns the next slot of the chain; the slot must be free.
    pub(crate) fn next(&self) -> u32 {
        self.location.load(Ordering::Relaxed) >> 2
    }

    pub(crate) fn set_location(&self, location: Location) {
        self.location.store(location as u32, Ordering::Release);
    }
}
