//! A local memory region that owns its memory.

use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::domain::Domain;
use super::lend::{Lend, Memory, MemoryMut};
use super::pinned::Stable;
use super::registered::Registered;
use super::shared::SharedRegion;
use super::slice::RegionSlice;
use crate::error::Failed;
use crate::flight::{AdapterState, Lent};
use crate::remote::resolve_range;

/// Registered memory of one owner (LMR): plain bytes until it is exposed or in flight.
///
/// It takes over the memory of `B` and gives it back ([`into_inner`](Self::into_inner)). Peers have
/// no access to it (Spec: RMB-45); [`expose`](Self::expose) makes a [`Window`](crate::Window) of
/// it. Dropping it deregisters the memory.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// let zone = dat_host::Adapter::open("mock://region")?.zone()?;
/// let mut region = zone.region(vec![0_u8; 4096])?;
/// region[..5].copy_from_slice(b"bytes");
/// let bytes: Vec<u8> = region.into_inner();
/// assert_eq!(&bytes[..5], b"bytes");
/// # Ok(())
/// # }
/// ```
///
/// It cannot be used after it is exposed:
///
/// ```compile_fail,E0382
/// # async fn expose(endpoint: &dat_host::Endpoint, region: dat_host::Region<Vec<u8>>) {
/// let window = region.expose(.., dat_host::Access::WRITE).to(endpoint).await;
/// println!("{}", region[0]);
/// # }
/// ```
///
/// Nor while an operation has it:
///
/// ```compile_fail,E0382
/// # fn write(
/// #     endpoint: &dat_host::Endpoint,
/// #     region: dat_host::Region<Vec<u8>>,
/// #     remote: dat_host::RemoteSlice,
/// # ) {
/// let written = endpoint.write(region, remote);
/// println!("{}", region[0]);
/// # drop(written);
/// # }
/// ```
pub struct Region<B: Stable> {
    registered: Box<Registered<B>>,
}

impl<B: Stable> Region<B> {
    pub(crate) fn new(domain: &Arc<Domain>, value: B) -> Result<Self, Failed<B>> {
        Registered::new(domain, value).map(Self::of)
    }

    pub(crate) const fn of(registered: Box<Registered<B>>) -> Self {
        Self { registered }
    }

    pub(crate) fn into_registered(self) -> Box<Registered<B>> {
        self.registered
    }

    /// Returns the local region of the core.
    pub fn id(&self) -> LmrId {
        self.registered.id()
    }

    /// Deregisters the memory and returns its owner.
    ///
    /// # Panics
    /// If the core refuses to free the region, which happens only if a remote region was bound to
    /// it by [`Adapter::ia`](crate::Adapter::ia). The memory is then leaked.
    pub fn into_inner(self) -> B {
        match self.registered.into_value() {
            Some(value) => value,
            None => panic!("a remote region is bound to the region by the core's own calls"),
        }
    }

    /// Selects a part of the region for an operation, in bytes.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the region, which is
    /// returned.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<RegionSlice<B>, Failed<Self>> {
        match resolve_range(range, self.len()) {
            Ok((start, length)) => Ok(RegionSlice::new(self, start, length)),
            Err(error) => Err(Failed::new(error, self)),
        }
    }

    /// Lets any number of Sends and RDMA Writes read the region at the same time.
    pub fn share(self) -> SharedRegion<B>
    where
        B: Sync,
    {
        SharedRegion::new(self.registered)
    }
}

impl<B: Stable> Deref for Region<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.registered.memory.bytes()
    }
}

impl<B: Stable> DerefMut for Region<B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.registered.memory.bytes_mut()
    }
}

impl<B: Stable> fmt::Debug for Region<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id())
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

impl<B: Stable> Memory for Region<B> {}

impl<B: Stable> MemoryMut for Region<B> {}

impl<B: Stable> Lend for Region<B> {
    type Segments = [LmrTriplet; 1];

    fn segments(&self) -> [LmrTriplet; 1] {
        [self.registered.segment(0, self.registered.memory.len())]
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        self.registered.domain().adapter()
    }

    fn lend(self) -> Lent {
        Lent::new(self.registered, 0, 0)
    }

    fn take_back(lent: Lent) -> Self {
        Self::of(lent.take())
    }
}
