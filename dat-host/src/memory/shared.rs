//! A region that many operations read at the same time.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::lent::{Lend, Lent, Memory};
use super::pinned::Stable;
use super::region::Region;
use super::registered::Registered;
use crate::core::Core;
use crate::error::Result;
use crate::remote::resolve_range;

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
pub struct SharedRegion<B: Stable + Sync> {
    #[expect(
        clippy::redundant_allocation,
        reason = "the box keeps the value in place"
    )]
    registered: Arc<Box<Registered<B>>>,
    start: usize,
    length: usize,
}

impl<B: Stable + Sync> SharedRegion<B> {
    pub(super) fn new(registered: Box<Registered<B>>) -> Self {
        let length = registered.memory.len();
        Self {
            registered: Arc::new(registered),
            start: 0,
            length,
        }
    }

    /// Returns the local region of the core.
    pub fn id(&self) -> LmrId {
        self.registered.id()
    }

    /// Returns a part that shares the memory, in bytes from the start of this one.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the part reaches outside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, length) = resolve_range(range, self.length)?;
        Ok(Self {
            start: self.start + start,
            length,
            ..self.clone()
        })
    }

    /// Returns the whole region if this is its last share, none in flight included.
    ///
    /// # Errors
    /// The share itself, if there are others.
    pub fn into_region(self) -> std::result::Result<Region<B>, Self> {
        let (start, length) = (self.start, self.length);
        Arc::try_unwrap(self.registered)
            .map(Region::of)
            .map_err(|registered| Self {
                registered,
                start,
                length,
            })
    }
}

impl<B: Stable + Sync> Clone for SharedRegion<B> {
    fn clone(&self) -> Self {
        Self {
            registered: Arc::clone(&self.registered),
            ..*self
        }
    }
}

impl<B: Stable + Sync> Deref for SharedRegion<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.registered.memory.bytes()[self.start..][..self.length]
    }
}

impl<B: Stable + Sync> fmt::Debug for SharedRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion")
            .field("id", &self.id())
            .field("start", &self.start)
            .field("length", &self.length)
            .finish()
    }
}

impl<B: Stable + Sync> Memory for SharedRegion<B> {}

impl<B: Stable + Sync> Lend for SharedRegion<B> {
    fn segment(&self) -> LmrTriplet {
        self.registered.segment(self.start, self.length)
    }

    fn core(&self) -> &Arc<Core> {
        self.registered.domain().core()
    }

    fn lend(self) -> Lent {
        Lent::shared(self.registered, self.start, self.length)
    }

    fn take_back(lent: Lent) -> Self {
        let (start, length) = (lent.start, lent.length);
        Self {
            registered: lent.take_shared(),
            start,
            length,
        }
    }
}
