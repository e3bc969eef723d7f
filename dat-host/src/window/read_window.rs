//! Windows on memory that peers only read.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dat_core::id::RmrId;

use super::bind::{Binding, Bound, Revoking};
use crate::connection::Endpoint;
use crate::drive::blocking;
use crate::error::{Failed, Result};
use crate::flight::AdapterState;
use crate::memory::{ReadRegion, Shares, StableRead};
use crate::remote::{Access, RemoteSlice, resolve_range};

impl<B: StableRead> ReadRegion<B> {
    /// Lets peers read a range; [`to`](ExposingRead::to) an endpoint completes the call.
    ///
    /// Expose clones to give several peers access.
    pub fn expose(self, range: impl RangeBounds<usize>) -> ExposingRead<B> {
        let range = resolve_range(range, self.len());
        ExposingRead::new(self, range)
    }
}

/// A region to expose for reads; [`to`](Self::to) an endpoint completes the call.
#[must_use = "nothing happens until an endpoint is named"]
pub struct ExposingRead<B: StableRead> {
    region: ReadRegion<B>,
    range: Result<(usize, usize)>,
}

impl<B: StableRead> ExposingRead<B> {
    pub(crate) const fn new(region: ReadRegion<B>, range: Result<(usize, usize)>) -> Self {
        Self { region, range }
    }

    /// Binds a window for the peer of `endpoint`, in order with its other operations.
    ///
    /// A device may grant access to peers of other endpoints of the zone, too.
    pub fn to(self, endpoint: &Endpoint) -> ExposeRead<B> {
        let owner = self.region.into_shares();
        ExposeRead(Binding::start(
            endpoint.state(),
            owner,
            self.range,
            Access::READ,
        ))
    }
}

impl<B: StableRead> fmt::Debug for ExposingRead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposingRead")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// A bind in flight: a future of the window. Dropping it frees the window when it completes.
///
/// # Errors
/// Returns the region, and the errors of [`Expose`](crate::Expose).
#[must_use = "the bind is posted, but nobody learns of its end"]
pub struct ExposeRead<B: StableRead>(Binding<Shares<B>>);

impl<B: StableRead> ExposeRead<B> {
    const fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }
}

impl<B: StableRead> Future for ExposeRead<B> {
    type Output = Result<ReadWindow<B>, Failed<ReadRegion<B>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.0.poll(context)) {
            Ok((bound, remote)) => Ok(ReadWindow { bound, remote }),
            Err(failed) => Err(Failed::new(failed.error, ReadRegion::of(failed.memory))),
        })
    }
}

blocking!([B: StableRead] ExposeRead<B>);

impl<B: StableRead> fmt::Debug for ExposeRead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposeRead").finish_non_exhaustive()
    }
}

/// Memory that the peer of one endpoint reads (RMR), and that nobody writes.
///
/// A region may have several windows, one for each of several peers. The
/// [table of windows](crate#windows) compares it with the other kinds.
///
/// [`revoke`](Self::revoke) ends the access and returns the region. Dropping the window ends the
/// access at once.
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
/// # let zone = Adapter::open("mock://read_window")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// let region = zone.read_region(&b"a constant"[..])?;
/// let window = region.expose(2..).to(&far).wait()?;
/// let read = near.read(window.remote(), zone.buffer(8)?).wait()?;
/// assert_eq!(read[..], window[..]);
/// assert!(near.write(read, window.remote()).wait().is_err());
/// # Ok(())
/// # }
/// ```
pub struct ReadWindow<B: StableRead> {
    bound: Box<Bound<Shares<B>>>,
    remote: RemoteSlice,
}

impl<B: StableRead> ReadWindow<B> {
    /// Returns the value that gives a peer access.
    pub const fn remote(&self) -> RemoteSlice {
        self.remote
    }

    /// Returns the remote region of the core.
    pub const fn id(&self) -> RmrId {
        self.bound.rmr
    }

    /// Ends the access of peers; a future of the region.
    ///
    /// As [`Window::revoke`](crate::Window::revoke).
    pub fn revoke(self) -> RevokeRead<B> {
        RevokeRead(Revoking::start(self.bound))
    }
}

impl<B: StableRead> Deref for ReadWindow<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bound.owner().bytes()[self.bound.start..][..self.bound.length]
    }
}

impl<B: StableRead> fmt::Debug for ReadWindow<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWindow")
            .field("id", &self.id())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// An unbind in flight: a future of the region. Dropping it ends the access when it completes.
#[must_use = "the unbind is posted, but nobody gets the region"]
pub struct RevokeRead<B: StableRead>(Revoking<Shares<B>>);

impl<B: StableRead> RevokeRead<B> {
    const fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }
}

impl<B: StableRead> Future for RevokeRead<B> {
    type Output = ReadRegion<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(ReadRegion::of)
    }
}

blocking!([B: StableRead] RevokeRead<B>);

impl<B: StableRead> fmt::Debug for RevokeRead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeRead").finish_non_exhaustive()
    }
}
