//! A region that many operations read at the same time.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::lend::{Lend, Memory};
use super::pinned::Stable;
use super::region::Region;
use super::registered::Registered;
use super::shares::Shares;
use crate::error::Result;
use crate::flight::{AdapterState, Lent};

/// A [`Region`] that any number of Sends and RDMA Writes read at the same time, or a part of it.
///
/// Made by [`Region::share`]. Clones and slices share the memory, which nobody writes. The last one
/// gives the region back ([`into_region`](Self::into_region)).
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// let zone = dat_host::Adapter::open("mock://shared")?.zone()?;
/// let all = zone.region(vec![7_u8; 100])?.share();
/// let part = all.slice(10..20)?;
/// assert_eq!((part.len(), part[0]), (10, 7));
/// let all = all.into_region().unwrap_err();
/// drop(part);
/// assert_eq!(all.into_region().unwrap().into_inner(), [7; 100]);
/// # Ok(())
/// # }
/// ```
///
/// It cannot be the target of a read or a receive:
///
/// ```compile_fail,E0277
/// # fn read(endpoint: &dat_host::Endpoint, shared: dat_host::SharedRegion<Vec<u8>>) {
/// let receive = endpoint.recv(shared);
/// # }
/// ```
pub struct SharedRegion<B: Stable + Sync>(Shares<B>);

impl<B: Stable + Sync> SharedRegion<B> {
    pub(super) fn new(registered: Box<Registered<B>>) -> Self {
        Self(Shares::new(registered))
    }

    /// Returns the local region of the core.
    pub fn id(&self) -> LmrId {
        self.0.id()
    }

    /// Returns a part that shares the memory, in bytes from the start of this one.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the part reaches outside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.0.slice(range).map(Self)
    }

    /// Returns the whole region if this is its last share, none in flight included.
    ///
    /// # Errors
    /// The share itself, if there are others.
    pub fn into_region(self) -> std::result::Result<Region<B>, Self> {
        self.0.into_registered().map(Region::of).map_err(Self)
    }
}

impl<B: Stable + Sync> Clone for SharedRegion<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Stable + Sync> Deref for SharedRegion<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl<B: Stable + Sync> fmt::Debug for SharedRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("SharedRegion", f)
    }
}

impl<B: Stable + Sync> Memory for SharedRegion<B> {}

impl<B: Stable + Sync> Lend for SharedRegion<B> {
    type Segments = [LmrTriplet; 1];

    fn segments(&self) -> [LmrTriplet; 1] {
        [self.0.whole()]
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }

    fn lend(self) -> Lent {
        self.0.lend()
    }

    fn take_back(lent: Lent) -> Self {
        Self(Shares::take_back(lent))
    }
}
