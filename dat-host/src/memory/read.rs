//! A region of bytes that nobody writes.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::domain::Domain;
use super::lend::{Lend, Memory};
use super::pinned::StableRead;
use super::registered::Registered;
use super::shares::Shares;
use crate::error::{Failed, Result};
use crate::flight::{AdapterState, Lent};

/// Registered bytes that nobody writes (LMR), or a part of them.
///
/// Made by [`Zone::read_region`](crate::Zone::read_region) of a shared or read-only buffer: a
/// `bytes::Bytes` (feature `bytes`), an `Arc<[u8]>`, a constant. Clones and slices share the
/// memory. Any number of Sends, RDMA Writes and [`ReadWindow`](crate::ReadWindow)s use it at the
/// same time, while the program reads it, too.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// use std::sync::Arc;
///
/// let zone = dat_host::Adapter::open("mock://read")?.zone()?;
/// let text: Arc<[u8]> = Arc::from(*b"header and body");
/// let region = zone.read_region(Arc::clone(&text))?;
/// let header = region.slice(..6)?;
/// assert_eq!((&header[..], &text[..6]), (&b"header"[..], &b"header"[..]));
/// # Ok(())
/// # }
/// ```
///
/// No operation and no peer writes it. It is no target of a read or a receive:
///
/// ```compile_fail,E0277
/// # fn read(endpoint: &dat_host::Endpoint, region: dat_host::ReadRegion<&'static [u8]>) {
/// let receive = endpoint.recv(region);
/// # }
/// ```
///
/// Nor are its bytes borrowed for writes:
///
/// ```compile_fail,E0594
/// # fn write(mut region: dat_host::ReadRegion<&'static [u8]>) {
/// region[0] = 1;
/// # }
/// ```
pub struct ReadRegion<B: StableRead>(Shares<B>);

impl<B: StableRead> ReadRegion<B> {
    pub(crate) fn new(domain: &Arc<Domain>, value: B) -> Result<Self, Failed<B>> {
        Registered::for_reads(domain, value).map(|registered| Self(Shares::new(registered)))
    }

    pub(crate) const fn of(shares: Shares<B>) -> Self {
        Self(shares)
    }

    pub(crate) fn into_shares(self) -> Shares<B> {
        self.0
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

    /// Deregisters the memory and returns its owner, if this is the last share.
    ///
    /// Operations in flight and windows have shares, too.
    ///
    /// # Errors
    /// The share itself, if there are others.
    ///
    /// # Panics
    /// As [`Region::into_inner`](crate::Region::into_inner).
    pub fn into_inner(self) -> std::result::Result<B, Self> {
        let registered = self.0.into_registered().map_err(Self)?;
        match registered.into_value() {
            Some(value) => Ok(value),
            None => panic!("a remote region is bound to the region by the core's own calls"),
        }
    }
}

impl<B: StableRead> Clone for ReadRegion<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: StableRead> Deref for ReadRegion<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl<B: StableRead> fmt::Debug for ReadRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("ReadRegion", f)
    }
}

impl<B: StableRead> Memory for ReadRegion<B> {}

impl<B: StableRead> Lend for ReadRegion<B> {
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
