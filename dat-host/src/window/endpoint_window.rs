//! Windows on memory that peers access.

use std::fmt;
use std::future::Future;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, ready};

use dat_core::backend::SyncDirection;
use dat_core::id::{LmrId, RmrId};

use super::bind::{Binding, Bound, Revoking};
use super::exposed::Exposed;
use crate::connection::Endpoint;
use crate::drive::blocking;
use crate::error::{Failed, Result};
use crate::flight::AdapterState;
use crate::memory::{Bindable, Region, Registered, Stable, copies};
use crate::remote::{Access, RemoteSlice, resolve_range};

impl<B: Stable> Region<B> {
    /// Opens a range of the region to peers; [`to`](Exposing::to) an endpoint completes the call.
    pub fn expose(self, range: impl RangeBounds<usize>, access: Access) -> Exposing<B> {
        let range = resolve_range(range, self.len());
        Exposing::new(self, range, access)
    }
}

/// A region to expose; [`to`](Self::to) an endpoint completes the call.
#[must_use = "nothing happens until an endpoint is named"]
pub struct Exposing<B: Stable> {
    region: Region<B>,
    range: Result<(usize, usize)>,
    access: Access,
}

impl<B: Stable> Exposing<B> {
    pub(crate) const fn new(
        region: Region<B>,
        range: Result<(usize, usize)>,
        access: Access,
    ) -> Self {
        Self {
            region,
            range,
            access,
        }
    }

    /// Binds a window for the peer of `endpoint`, in order with its other operations.
    ///
    /// A device may grant access to peers of other endpoints of the zone, too.
    pub fn to(self, endpoint: &Endpoint) -> Expose<B> {
        let owner = self.region.into_registered();
        Expose {
            binding: Binding::start(endpoint.state(), owner, self.range, self.access),
        }
    }
}

impl<B: Stable> fmt::Debug for Exposing<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposing")
            .field("region", &self.region)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// A bind in flight: a future of the window. Dropping it frees region and window when it completes.
///
/// # Errors
/// Returns the region, to which no peer has access, and
/// - [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the region.
/// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`segment`): the range is empty.
/// - INVALID_PARAMETER (`privileges`): the rights have unknown bits.
/// - INVALID_STATE: the endpoint is not connected.
/// - PROTECTION_VIOLATION: region and endpoint are of different zones.
/// - INVALID_HANDLE: they are of different adapters, or the adapter is closed.
/// - INSUFFICIENT_RESOURCES: no remote region is left, or the endpoint has too many operations in
///   flight.
/// - MODEL_NOT_SUPPORTED: the device has no windows.
/// - [`Failed`](crate::Error::Failed): the bind failed, or was flushed as the connection ended.
/// - [`Closed`](crate::Error::Closed): the adapter was closed.
#[must_use = "the bind is posted, but nobody learns of its end"]
pub struct Expose<B: Stable> {
    binding: Binding<Box<Registered<B>>>,
}

impl<B: Stable> Expose<B> {
    const fn adapter(&self) -> &Arc<AdapterState> {
        self.binding.adapter()
    }
}

impl<B: Stable> Future for Expose<B> {
    type Output = Result<Window<B>, Failed<Region<B>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.binding.poll(context)) {
            Ok((bound, remote)) => Ok(Window { bound, remote }),
            Err(failed) => Err(Failed::new(failed.error, Region::of(failed.memory))),
        })
    }
}

blocking!([B: Stable] Expose<B>);

impl<B: Stable> fmt::Debug for Expose<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expose").finish_non_exhaustive()
    }
}

/// Memory that the peer of one endpoint accesses (RMR): no slices, only copies and atomics.
///
/// The [table of windows](crate#windows) compares it with the other kinds. Offsets are those of
/// [`remote`](Self::remote). [`revoke`](Self::revoke) ends the access and returns the region.
/// Dropping the window frees both at once; forgetting it keeps both until the adapter is closed.
///
/// ```
/// # use dat_host::{Access, Adapter, Endpoint, Result};
/// # fn connected(zone: &dat_host::Zone) -> Result<(Endpoint, Endpoint)> {
/// #     let listener = zone.listen_with(None, 1)?;
/// #     let near = zone.connect((zone.address()?, listener.qualifier())).start();
/// #     let far = listener.next().wait()?.accept().wait()?;
/// #     Ok((near.wait()?, far))
/// # }
/// # fn main() -> Result<()> {
/// # let zone = Adapter::open("mock://window")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// let region = zone.region(vec![0_u8; 4096])?;
/// let window = region.expose(..1024, Access::WRITE).to(&far).wait()?;
/// near.write(zone.copy(b"data")?, window.remote()).wait()?;
/// let region = window.revoke().wait();
/// assert_eq!(&region[..4], b"data");
/// # Ok(())
/// # }
/// ```
///
/// The bytes cannot be borrowed as a slice:
///
/// ```compile_fail,E0608
/// # fn slice(window: dat_host::Window<Vec<u8>>) {
/// println!("{}", window[0]);
/// # }
/// ```
pub struct Window<B: Stable> {
    bound: Box<Bound<Box<Registered<B>>>>,
    remote: RemoteSlice,
}

impl<B: Stable> Window<B> {
    /// Returns the value that gives a peer access.
    pub const fn remote(&self) -> RemoteSlice {
        self.remote
    }

    /// Returns the remote region of the core.
    pub const fn id(&self) -> RmrId {
        self.bound.rmr
    }

    /// Returns the local region of the core.
    pub fn region_id(&self) -> LmrId {
        self.bound.owner().id()
    }

    /// Returns the exposed bytes as atomics, which peers change at any moment.
    ///
    /// A device may write them in any order. A message that the peer sends after its write tells
    /// that the write has arrived.
    ///
    /// Where the adapter has `lmr_sync_req`, accesses to them need
    /// [`sync_rdma_read`](crate::Adapter::sync_rdma_read) and
    /// [`sync_rdma_write`](crate::Adapter::sync_rdma_write); [`load`](Self::load) and
    /// [`store`](Self::store) do without.
    pub fn atomics(&self) -> &[AtomicU8] {
        let (start, length) = (self.bound.start, self.bound.length);
        &self.bound.owner().memory.atomics()[start..][..length]
    }

    /// Returns a range to synchronise, for programs that use the [atomics](Self::atomics).
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange): the range reaches outside of the window.
    pub fn exposed(&self, range: impl RangeBounds<usize>) -> Result<Exposed<'_>> {
        let (start, length) = resolve_range(range, self.bound.length)?;
        let owner = self.bound.owner();
        let segment = owner.segment(self.bound.start + start, length);
        Ok(Exposed::new(owner.domain().adapter(), segment))
    }

    #[inline]
    fn synchronise(&self, direction: SyncDirection, offset: usize, length: usize) {
        let owner = self.bound.owner();
        owner.synchronise(direction, self.bound.start + offset, length);
    }

    /// Ends the access of peers; a future of the region.
    ///
    /// The unbind comes after the operations that the endpoint has in flight. Without a connection,
    /// and if the unbind is flushed, the window is freed instead: it ends in any case.
    pub fn revoke(self) -> Revoke<B> {
        Revoke {
            revoking: Revoking::start(self.bound),
        }
    }
}

copies!([B: Stable] Window<B>);

impl<B: Stable> fmt::Debug for Window<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("id", &self.id())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// An unbind in flight: a future of the region. Dropping it frees the region when it completes.
#[must_use = "the unbind is posted, but nobody gets the region"]
pub struct Revoke<B: Stable> {
    revoking: Revoking<Box<Registered<B>>>,
}

impl<B: Stable> Revoke<B> {
    const fn adapter(&self) -> &Arc<AdapterState> {
        self.revoking.adapter()
    }
}

impl<B: Stable> Future for Revoke<B> {
    type Output = Region<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.revoking.poll(context).map(Region::of)
    }
}

blocking!([B: Stable] Revoke<B>);

impl<B: Stable> fmt::Debug for Revoke<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revoke").finish_non_exhaustive()
    }
}
