//! A part of a region, for one operation.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use dat_core::memory::LmrTriplet;

use super::lend::{Lend, Memory, MemoryMut};
use super::pinned::Stable;
use super::region::Region;
use crate::flight::{AdapterState, Lent};

/// A part of a [`Region`], as an operation takes it; keeps the whole region.
pub struct RegionSlice<B: Stable> {
    region: Region<B>,
    start: usize,
    length: usize,
}

impl<B: Stable> RegionSlice<B> {
    /// Selects a range that is inside of the region.
    pub(super) const fn new(region: Region<B>, start: usize, length: usize) -> Self {
        Self {
            region,
            start,
            length,
        }
    }

    /// Returns the whole region.
    pub fn into_region(self) -> Region<B> {
        self.region
    }
}

impl<B: Stable> Deref for RegionSlice<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.region[self.start..][..self.length]
    }
}

impl<B: Stable> DerefMut for RegionSlice<B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.region[self.start..][..self.length]
    }
}

impl<B: Stable> fmt::Debug for RegionSlice<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionSlice")
            .field("region", &self.region)
            .field("start", &self.start)
            .field("length", &self.length)
            .finish()
    }
}

impl<B: Stable> Memory for RegionSlice<B> {}

impl<B: Stable> MemoryMut for RegionSlice<B> {}

impl<B: Stable> Lend for RegionSlice<B> {
    type Segments = [LmrTriplet; 1];

    fn segments(&self) -> [LmrTriplet; 1] {
        let [whole] = self.region.segments();
        [LmrTriplet {
            address: whole.address.wrapping_add(self.start as u64),
            length: self.length as u64,
            ..whole
        }]
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        self.region.adapter()
    }

    fn lend(self) -> Lent {
        Lent::new(self.region.into_registered(), self.start, self.length)
    }

    fn take_back(lent: Lent) -> Self {
        let (start, length) = (lent.start, lent.length);
        Self::new(Region::of(lent.take()), start, length)
    }
}
